// sarama behind the runner's commands.
package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"thalweg/clients/record"

	"github.com/IBM/sarama"
)

type library struct{}

func main() { record.Main(library{}) }

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

func (library) Produce(topic, codec string, records []record.Record) error {
	c := config()
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	c.Producer.Compression = codecs[codec]
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Producer.MaxMessageBytes = 10_000_000
	c.Producer.Return.Successes = true
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(record.Brokers(), c)
	if err != nil {
		return err
	}
	var sent []*sarama.ProducerMessage
	for _, r := range records {
		one := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition}
		if r.Key != nil {
			one.Key = sarama.StringEncoder(*r.Key)
		}
		if r.Value != nil {
			one.Value = sarama.StringEncoder(*r.Value)
		}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, sarama.RecordHeader{Key: []byte(*h[0]), Value: record.Bytes(h[1])})
		}
		sent = append(sent, one)
	}
	err = producer.SendMessages(sent)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		err = failed[0].Err // the list itself only counts
	}
	return errors.Join(err, producer.Close())
}

func (library) Consume(topic string, start record.Start, count int) error {
	client, err := sarama.NewClient(record.Brokers(), config())
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Partitions(topic); err != nil {
		return err
	}
	offset := start.Number
	switch start.Kind {
	case "beginning":
		offset = sarama.OffsetOldest
	case "end":
		offset = sarama.OffsetNewest
	case "timestamp":
		if offset, err = client.GetOffset(topic, 0, start.Number); err != nil {
			return err
		}
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(topic, 0, offset)
	if err != nil {
		return err
	}
	for ; count > 0; count-- {
		show(<-partition.Messages())
	}
	return errors.Join(partition.Close(), consumer.Close())
}

func (library) Group(name, topic string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := config()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	group, err := sarama.NewConsumerGroup(record.Brokers(), name, c)
	if err != nil {
		return err
	}
	// Consume returns at each rebalance.
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, member{}); err != nil {
			return errors.Join(err, group.Close())
		}
	}
	return group.Close()
}

type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			show(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func withAdmin(f func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(record.Brokers(), config())
	if err != nil {
		return err
	}
	return errors.Join(f(admin), admin.Close())
}

func (library) Create(topic string, partitions int32, configs map[string]string) error {
	wanted := map[string]*string{}
	for key, value := range configs {
		wanted[key] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: wanted}
	return withAdmin(func(admin sarama.ClusterAdmin) error { return admin.CreateTopic(topic, detail, false) })
}

func (library) Alter(topic string, configs map[string]string) error {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for key, value := range configs {
		changes[key] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	return withAdmin(func(admin sarama.ClusterAdmin) error {
		return admin.IncrementalAlterConfig(sarama.TopicResource, topic, changes, false)
	})
}

func (library) Describe(topic string) (partitions int, configs map[string]*string, err error) {
	configs = map[string]*string{}
	err = withAdmin(func(admin sarama.ClusterAdmin) error {
		topics, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			return err
		}
		if topics[0].Err != sarama.ErrNoError {
			return topics[0].Err
		}
		partitions = len(topics[0].Partitions)
		resource := &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
		described, err := admin.DescribeConfigs([]*sarama.ConfigResource{resource}, sarama.DescribeConfigsOptions{})
		if err != nil {
			return err
		}
		for _, found := range described {
			if found.ErrorCode != sarama.ErrNoError {
				err = errors.Join(err, found.ErrorCode)
			}
			for _, c := range found.Configs {
				configs[c.Name] = &c.Value
			}
		}
		return err
	})
	return
}

func (library) Delete(topic string) error {
	return withAdmin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) })
}

func show(m *sarama.ConsumerMessage) {
	shown := record.Record{
		Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(),
		Key: record.Text(m.Key), Value: record.Text(m.Value),
	}
	for _, h := range m.Headers {
		shown.Headers = append(shown.Headers, [2]*string{record.Text(h.Key), record.Text(h.Value)})
	}
	record.Show(shown)
}
