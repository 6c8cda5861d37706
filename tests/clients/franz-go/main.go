// franz-go behind the runner's commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"thalweg/clients/record"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct{}

func main() { record.Main(franz{}) }

func client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(record.Brokers()...)}, opts...)...)
}

func withAdmin(f func(*kadm.Client) error) error {
	cl, err := client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(kadm.NewClient(cl))
}

func (franz) Produce(topic, codec string, records []record.Record) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	cl, err := client(
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(20*time.Millisecond),
		kgo.UnknownTopicRetries(1),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	var sent []*kgo.Record
	for _, r := range records {
		one := &kgo.Record{Topic: topic, Partition: r.Partition, Key: record.Bytes(r.Key), Value: record.Bytes(r.Value)}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: *h[0], Value: record.Bytes(h[1])})
		}
		sent = append(sent, one)
	}
	return cl.ProduceSync(context.Background(), sent...).FirstErr()
}

func (franz) Consume(topic string, start record.Start, count int) error {
	offsets := map[string]kgo.Offset{
		"beginning": kgo.NewOffset().AtStart(), "end": kgo.NewOffset().AtEnd(),
		"offset": kgo.NewOffset().At(start.Number), "timestamp": kgo.NewOffset().AfterMilli(start.Number),
	}
	cl, err := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offsets[start.Kind]}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	err = withAdmin(func(adm *kadm.Client) error {
		topics, err := adm.ListTopics(context.Background(), topic)
		if err != nil {
			return err
		}
		return topics.Error()
	})
	if err != nil {
		return err
	}
	for count > 0 {
		fetches := cl.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if count--; count >= 0 {
				show(r)
			}
		}
	}
	return nil
}

func (franz) Group(name, topic string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cl, err := client(
		kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			show(r)
		}
	}
	// What was polled before the last poll was committed by it; this is the rest.
	if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
		return err
	}
	cl.Close()
	return nil
}

func (franz) Create(topic string, partitions int32, configs map[string]string) error {
	wanted := map[string]*string{}
	for key, value := range configs {
		wanted[key] = &value
	}
	return withAdmin(func(adm *kadm.Client) error {
		_, err := adm.CreateTopic(context.Background(), partitions, 1, wanted, topic)
		return err
	})
}

func (franz) Alter(topic string, configs map[string]string) error {
	var changes []kadm.AlterConfig
	for key, value := range configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	return withAdmin(func(adm *kadm.Client) error {
		answers, err := adm.AlterTopicConfigs(context.Background(), changes, topic)
		for _, answer := range answers {
			err = errors.Join(err, answer.Err)
		}
		return err
	})
}

func (franz) Describe(topic string) (partitions int, configs map[string]*string, err error) {
	configs = map[string]*string{}
	err = withAdmin(func(adm *kadm.Client) error {
		topics, err := adm.ListTopics(context.Background(), topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return err
		}
		partitions = len(topics[topic].Partitions)
		described, err := adm.DescribeTopicConfigs(context.Background(), topic)
		for _, resource := range described {
			err = errors.Join(err, resource.Err)
			for _, c := range resource.Configs {
				configs[c.Key] = c.Value
			}
		}
		return err
	})
	return
}

func (franz) Delete(topic string) error {
	return withAdmin(func(adm *kadm.Client) error {
		_, err := adm.DeleteTopic(context.Background(), topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("unknown topic: %w", err)
		}
		return err
	})
}

func show(r *kgo.Record) {
	shown := record.Record{
		Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(),
		Key: record.Text(r.Key), Value: record.Text(r.Value),
	}
	for _, h := range r.Headers {
		name := h.Key
		shown.Headers = append(shown.Headers, [2]*string{&name, record.Text(h.Value)})
	}
	record.Show(shown)
}
