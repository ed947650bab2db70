package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tf-serving-simulator/internal/wire"
)

func record(data []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out := binary.LittleEndian.AppendUint32(length, maskedChecksum(length))
	return binary.LittleEndian.AppendUint32(append(out, data...), maskedChecksum(data))
}

func warmupRecord(t *testing.T, rows ...float32) []byte {
	t.Helper()
	x := tensor{shape: []int64{int64(len(rows))}, values: rows}
	data, err := proto.Marshal(&wire.PredictionLog{LogType: &wire.PredictionLog_PredictLog{PredictLog: &wire.PredictLog{
		Request: &wire.PredictRequest{Inputs: map[string]*wire.TensorProto{"x": x.proto(false)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return record(data)
}

func TestChecksumsAreMaskedCRC32C(t *testing.T) {
	// 0xe3069283 is the published CRC-32C of these digits.
	published := uint32(0xe3069283)
	if got, want := maskedChecksum([]byte("123456789")), (published>>15|published<<17)+uint32(0xa282ead8); got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestWarmUpReplaysItsRecordsThroughTheQueue(t *testing.T) {
	two := append(warmupRecord(t, 1, 2), warmupRecord(t, 1)...)
	var tooMany []byte
	for range maxWarmupRecords + 1 {
		tooMany = append(tooMany, warmupRecord(t, 1)...)
	}
	broken := warmupRecord(t, 1)
	broken[len(broken)-1]++
	for name, test := range map[string]struct {
		content []byte
		code    codes.Code
		ran     float64 // batches
	}{
		"two records":              {two, codes.OK, 2},
		"an empty file":            {nil, codes.OK, 0},
		"a record that is cut off": {two[:len(two)-3], codes.DataLoss, 0},
		"a wrong checksum":         {broken, codes.DataLoss, 0},
		"no record file":           {[]byte("text"), codes.DataLoss, 0},
		"too many":                 {tooMany, codes.InvalidArgument, 0},
		"a request that fails":     {warmupRecord(t, 1, 2, 3), codes.InvalidArgument, 0},
		"not a predict request":    {record(nil), codes.Unimplemented, 0},
	} {
		parameters := &wire.BatchingParameters{MaxBatchSize: wrapperspb.Int64(2), NumBatchThreads: wrapperspb.Int64(1)}
		scheduler, err := newBatchScheduler(parameters, 1)
		if err != nil {
			t.Fatal(err)
		}
		stats := newMetrics()
		l := &loader{
			settings:  sessionSettings{batching: parameters, tags: []string{"serve"}, warmup: true, warmupRepeat: 1},
			scheduler: scheduler, gpu: newDevice("GPU-0", knobs{}), stats: stats,
		}
		base := modelFolder(t, "1")
		file := filepath.Join(base, "1", warmupFile)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, test.content, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = l.load("m", 1, filepath.Join(base, "1"))
		if status.Code(err) != test.code {
			t.Errorf("%s: got %v, want %s", name, err, test.code)
		}
		ran := 0.0
		for _, one := range stats.series[wrappedRunCount] {
			ran = one.sum
		}
		if ran != test.ran {
			t.Errorf("%s: %v batches, want %v", name, ran, test.ran)
		}
	}
}
