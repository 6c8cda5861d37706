// franz-go behind the runner's commands.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

func main() {
	args := os.Args[2:] // the runner gives as many as the command has
	commands := map[string]func() error{
		"produce":  func() error { return produce(args[0], args[1]) },
		"consume":  func() error { return consume(args[0], args[1], args[2]) },
		"group":    func() error { return group(args[0], args[1]) },
		"create":   func() error { return create(args[0], args[1], args[2:]) },
		"alter":    func() error { return alter(args[0], args[1:]) },
		"describe": func() error { return describe(args[0]) },
		"delete":   func() error { return remove(args[0]) },
	}
	if err := commands[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := kgo.SeedBrokers(strings.Split(os.Getenv("BROKERS"), ",")...)
	return kgo.NewClient(append([]kgo.Opt{seeds}, opts...)...)
}

func withAdmin(f func(*kadm.Client) error) error {
	cl, err := client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(kadm.NewClient(cl))
}

func produce(topic, codec string) error {
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
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		sent := &kgo.Record{Topic: topic, Partition: r.Partition, Key: bytes(r.Key), Value: bytes(r.Value)}
		for _, h := range r.Headers {
			sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: *h[0], Value: bytes(h[1])})
		}
		records = append(records, sent)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return cl.ProduceSync(context.Background(), records...).FirstErr()
}

func consume(topic, start, count string) error {
	kind, number, _ := strings.Cut(start, ":")
	n, _ := strconv.ParseInt(number, 10, 64)
	offsets := map[string]kgo.Offset{
		"beginning": kgo.NewOffset().AtStart(), "end": kgo.NewOffset().AtEnd(),
		"offset": kgo.NewOffset().At(n), "timestamp": kgo.NewOffset().AfterMilli(n),
	}
	wanted, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	cl, err := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offsets[kind]}}),
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
	for wanted > 0 {
		fetches := cl.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if wanted--; wanted >= 0 {
				show(r)
			}
		}
	}
	return nil
}

func group(name, topic string) error {
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

func create(topic, partitions string, configs []string) error {
	count, err := strconv.Atoi(partitions)
	if err != nil {
		return err
	}
	wanted := map[string]*string{}
	for _, c := range configs {
		key, value, _ := strings.Cut(c, "=")
		wanted[key] = &value
	}
	return withAdmin(func(adm *kadm.Client) error {
		_, err := adm.CreateTopic(context.Background(), int32(count), 1, wanted, topic)
		return err
	})
}

func alter(topic string, configs []string) error {
	var changes []kadm.AlterConfig
	for _, c := range configs {
		key, value, _ := strings.Cut(c, "=")
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

func describe(topic string) error {
	return withAdmin(func(adm *kadm.Client) error {
		topics, err := adm.ListTopics(context.Background(), topic)
		if err == nil {
			err = topics.Error()
		}
		if err != nil {
			return err
		}
		described, err := adm.DescribeTopicConfigs(context.Background(), topic)
		if err != nil {
			return err
		}
		configs := map[string]*string{}
		for _, resource := range described {
			if resource.Err != nil {
				return resource.Err
			}
			for _, c := range resource.Configs {
				configs[c.Key] = c.Value
			}
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{
			"partitions": len(topics[topic].Partitions), "configs": configs,
		})
	})
}

func remove(topic string) error {
	return withAdmin(func(adm *kadm.Client) error {
		_, err := adm.DeleteTopic(context.Background(), topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("unknown topic: %w", err)
		}
		return err
	})
}

func show(r *kgo.Record) {
	headers := [][2]*string{}
	for _, h := range r.Headers {
		name := h.Key
		headers = append(headers, [2]*string{&name, text(h.Value)})
	}
	_ = json.NewEncoder(os.Stdout).Encode(record{
		r.Partition, r.Offset, r.Timestamp.UnixMilli(), text(r.Key), text(r.Value), headers,
	})
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	s := string(data)
	return &s
}

func bytes(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
