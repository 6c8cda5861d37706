// segmentio's kafka-go behind the runner's commands.
package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"thalweg/clients/record"

	"github.com/segmentio/kafka-go"
)

type library struct{}

func main() { record.Main(library{}) }

var address = kafka.TCP(record.Brokers()...)

func (library) Produce(topic, codec string, records []record.Record) error {
	codecs := map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	partitions := make(chan int, len(records))
	writer := &kafka.Writer{
		Addr: address, Topic: topic, Compression: codecs[codec], RequiredAcks: kafka.RequireAll,
		BatchBytes: 10_000_000, BatchTimeout: 20 * time.Millisecond, MaxAttempts: 1,
		// It asks for each message in turn.
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return <-partitions }),
	}
	var sent []kafka.Message
	for _, r := range records {
		one := kafka.Message{Key: record.Bytes(r.Key), Value: record.Bytes(r.Value)}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, kafka.Header{Key: *h[0], Value: record.Bytes(h[1])})
		}
		sent = append(sent, one)
		partitions <- int(r.Partition)
	}
	return errors.Join(writer.WriteMessages(context.Background(), sent...), writer.Close())
}

func (library) Consume(topic string, start record.Start, count int) error {
	ctx := context.Background()
	if _, err := partitionsOf(topic); err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: record.Brokers(), Topic: topic, MaxWait: time.Second})
	defer reader.Close()
	var err error
	switch start.Kind {
	case "beginning":
		err = reader.SetOffset(kafka.FirstOffset)
	case "end":
		err = reader.SetOffset(kafka.LastOffset)
	case "timestamp":
		err = reader.SetOffsetAt(ctx, time.UnixMilli(start.Number))
	default:
		err = reader.SetOffset(start.Number)
	}
	for ; count > 0 && err == nil; count-- {
		var message kafka.Message
		if message, err = reader.ReadMessage(ctx); err == nil {
			show(message)
		}
	}
	return err
}

func (library) Group(name, topic string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: record.Brokers(), GroupID: name, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: time.Second,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
	})
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			return reader.Close()
		}
		if err != nil {
			return errors.Join(err, reader.Close())
		}
		show(message)
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			return errors.Join(err, reader.Close())
		}
	}
}

func client() *kafka.Client { return &kafka.Client{Addr: address, Timeout: 30 * time.Second} }

func (library) Create(topic string, partitions int32, configs map[string]string) error {
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: 1}
	for key, value := range configs {
		wanted.ConfigEntries = append(wanted.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
	}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}}
	answer, err := client().CreateTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (library) Alter(topic string, configs map[string]string) error {
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
	}
	for key, value := range configs {
		resource.Configs = append(resource.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
	answer, err := client().IncrementalAlterConfigs(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Resources[0].Error
}

func (library) Describe(topic string) (partitions int, configs map[string]*string, err error) {
	if partitions, err = partitionsOf(topic); err != nil {
		return
	}
	configs = map[string]*string{}
	request := &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	}
	answer, err := client().DescribeConfigs(context.Background(), request)
	if err != nil {
		return
	}
	err = answer.Resources[0].Error
	for _, c := range answer.Resources[0].ConfigEntries {
		configs[c.ConfigName] = &c.ConfigValue
	}
	return
}

func (library) Delete(topic string) error {
	request := &kafka.DeleteTopicsRequest{Topics: []string{topic}}
	answer, err := client().DeleteTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

// partitionsOf counts the partitions of a topic that is there.
func partitionsOf(topic string) (int, error) {
	answer, err := client().Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	if err := answer.Topics[0].Error; err != nil {
		return 0, err
	}
	return len(answer.Topics[0].Partitions), nil
}

func show(m kafka.Message) {
	shown := record.Record{
		Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(),
		Key: record.Text(m.Key), Value: record.Text(m.Value),
	}
	for _, h := range m.Headers {
		name := h.Key
		shown.Headers = append(shown.Headers, [2]*string{&name, record.Text(h.Value)})
	}
	record.Show(shown)
}
