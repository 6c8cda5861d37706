// Package record is what the clients in Go share: the runner's commands, records in and records out.
package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Record is a line of the runner's. Offset and Timestamp (ms) are those of consumed records.
type Record struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
}

// Start is where `consume` begins: Kind is beginning, end, offset or timestamp, Number the offset or the time in ms.
type Start struct {
	Kind   string
	Number int64
}

// Client is a library behind the runner's commands.
type Client interface {
	Produce(topic, codec string, records []Record) error
	Consume(topic string, start Start, count int) error
	Group(name, topic string) error
	Create(topic string, partitions int32, configs map[string]string) error
	Alter(topic string, configs map[string]string) error
	Describe(topic string) (partitions int, configs map[string]*string, err error)
	Delete(topic string) error
}

// Unsupported is the error of a command that a library has nothing for.
type Unsupported string

func (u Unsupported) Error() string { return string(u) }

// Brokers are the addresses to start from.
func Brokers() []string { return strings.Split(os.Getenv("BROKERS"), ",") }

// Main runs the command that the arguments name and ends the process.
func Main(client Client) {
	err := run(client, os.Args[1], os.Args[2:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if _, missing := err.(Unsupported); missing {
		os.Exit(77)
	}
	os.Exit(1)
}

func run(client Client, command string, args []string) error {
	switch command {
	case "produce":
		records, err := read()
		if err != nil {
			return err
		}
		return client.Produce(args[0], args[1], records)
	case "consume":
		kind, number, _ := strings.Cut(args[1], ":")
		n, _ := strconv.ParseInt(number, 10, 64) // none for beginning and end
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return client.Consume(args[0], Start{kind, n}, count)
	case "group":
		return client.Group(args[0], args[1])
	case "create":
		partitions, err := strconv.ParseInt(args[1], 10, 32)
		if err != nil {
			return err
		}
		return client.Create(args[0], int32(partitions), pairs(args[2:]))
	case "alter":
		return client.Alter(args[0], pairs(args[1:]))
	case "describe":
		partitions, configs, err := client.Describe(args[0])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"partitions": partitions, "configs": configs})
	case "delete":
		return client.Delete(args[0])
	}
	return Unsupported("no " + command)
}

func read() ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, lines.Err()
}

func pairs(args []string) map[string]string {
	found := map[string]string{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		found[key] = value
	}
	return found
}

// Show prints a consumed record.
func Show(r Record) {
	if r.Headers == nil {
		r.Headers = [][2]*string{}
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

// Text is the text of bytes, nil for nil.
func Text(data []byte) *string {
	if data == nil {
		return nil
	}
	s := string(data)
	return &s
}

// Bytes are the bytes of a text, nil for nil.
func Bytes(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}
