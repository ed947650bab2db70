package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tf-serving-simulator/internal/wire"
)

const (
	warmupFile       = "assets.extra/tf_serving_warmup_requests"
	maxWarmupRecords = 1000
	maxRecordBytes   = 1 << 28
)

// warmUp replays the requests that come with a version, one at a time and through the batching queue.
// A file that can't be read, or a request that fails, fails the load.
func (l *loader) warmUp(s *servable, dir string) error {
	start := time.Now()
	records, err := readWarmup(filepath.Join(dir, warmupFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for n := 0; err == nil && n < len(records); n++ {
		for range l.settings.warmupRepeat {
			if err == nil {
				err = s.replay(records[n])
			}
		}
	}
	name := codeName(status.Code(err))
	l.stats.observe(warmupLatency, float64(time.Since(start).Microseconds()), dir, name)
	l.stats.add(warmupRecords, float64(len(records)), dir, name)
	return err
}

func (s *servable) replay(request *wire.PredictRequest) error {
	if request == nil {
		return status.Error(codes.Unimplemented, "only predict requests are replayed by the simulator")
	}
	x, err := predictInput(request)
	if err != nil {
		return err
	}
	_, err = s.run(defaultSignature, x, time.Time{})
	return err
}

// readWarmup reads a TFRecord file of PredictionLog messages.
func readWarmup(file string) ([]*wire.PredictRequest, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	reader := bufio.NewReader(opened)
	var requests []*wire.PredictRequest
	for {
		record, err := nextRecord(reader)
		if errors.Is(err, io.EOF) {
			return requests, nil
		}
		entry := &wire.PredictionLog{}
		if err != nil || proto.Unmarshal(record, entry) != nil {
			return nil, status.Errorf(codes.DataLoss, "Please verify your data format in %s", file)
		}
		if len(requests) == maxWarmupRecords {
			return nil, invalid("Number of warmup records exceeds the maximum (%d) limit", maxWarmupRecords)
		}
		requests = append(requests, entry.GetPredictLog().GetRequest())
	}
}

// nextRecord reads length, checksum of the length, data, checksum of the data; io.EOF only between two records.
func nextRecord(reader io.Reader) ([]byte, error) {
	header := make([]byte, 12)
	if _, err := io.ReadFull(reader, header); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(header)
	if length > maxRecordBytes || maskedChecksum(header[:8]) != binary.LittleEndian.Uint32(header[8:]) {
		return nil, errors.New("corrupt record")
	}
	data := make([]byte, length+4)
	if _, err := io.ReadFull(reader, data); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	if maskedChecksum(data[:length]) != binary.LittleEndian.Uint32(data[length:]) {
		return nil, errors.New("corrupt record")
	}
	return data[:length], nil
}

// maskedChecksum is CRC-32C, turned and shifted as the TFRecord format has it.
func maskedChecksum(data []byte) uint32 {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}
