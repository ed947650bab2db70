package main

import (
	"fmt"
	"math"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// metric describes one family as the server's exporter names it.
type metric struct {
	path   string // of TensorFlow's own registry, such as /tensorflow/serving/request_count
	labels []string
	bounds []float64 // of a histogram; nil: a counter
}

// exponential gives the upper bounds scale x growth^0 ... scale x growth^(n-1).
func exponential(scale, growth float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = scale * math.Pow(growth, float64(i))
	}
	return bounds
}

var (
	latencyBounds = exponential(10, 1.8, 33) // microseconds
	sizeBounds    = exponential(1, 2, 20)

	requestCount   = &metric{"/tensorflow/serving/request_count", []string{"model_name", "status"}, nil}
	requestLatency = &metric{"/tensorflow/serving/request_latency", []string{"model_name", "API", "entrypoint"}, latencyBounds}
	runtimeLatency = &metric{"/tensorflow/serving/runtime_latency", []string{"model_name", "API", "runtime"}, latencyBounds}

	exampleCounts = &metric{"/tensorflow/serving/request_example_counts", []string{"model"}, sizeBounds}
	exampleTotal  = &metric{"/tensorflow/serving/request_example_count_total", []string{"model"}, nil}

	queuingLatency = &metric{"/tensorflow/serving/batching_session/queuing_latency", []string{"thread_pool_name"},
		exponential(100, 1.2, 52)}
	wrappedRunCount    = &metric{"/tensorflow/serving/batching_session/wrapped_run_count", nil, nil}
	inputBatchSize     = &metric{"/tensorflow/serving/batching_session/input_batch_size", nil, sizeBounds}
	processedBatchSize = &metric{"/tensorflow/serving/batching_session/processed_batch_size", nil, sizeBounds}
	paddingSize        = &metric{"/tensorflow/serving/batching_session/padding_size", []string{"execution_batch_size"}, sizeBounds}

	warmupLatency = &metric{"/tensorflow/serving/model_warmup_latency", []string{"model_path", "status"}, latencyBounds}
	warmupRecords = &metric{"/tensorflow/serving/model_warmup_records_read", []string{"model_path", "status"}, nil}

	loadAttempts     = &metric{"/tensorflow/cc/saved_model/load_attempt_count", []string{"model_path", "status"}, nil}
	loadLatency      = &metric{"/tensorflow/cc/saved_model/load_latency", []string{"model_path"}, nil}
	loadLatencyStage = &metric{"/tensorflow/cc/saved_model/load_latency_by_stage", []string{"model_path", "stage"}, latencyBounds}
)

// metrics holds what has been touched; nothing appears before that.
type metrics struct {
	mu     sync.Mutex
	series map[*metric]map[string]*series
}

type series struct {
	labels  string
	sum     float64
	count   uint64
	buckets []uint64 // one more than the metric has bounds
}

func newMetrics() *metrics { return &metrics{series: map[*metric]map[string]*series{}} }

func (m *metrics) touch(of *metric, values []string) *series {
	if len(values) != len(of.labels) {
		panic(of.path + ": wrong number of labels")
	}
	if m.series[of] == nil {
		m.series[of] = map[string]*series{}
	}
	pairs := make([]string, len(values))
	for i, value := range values {
		pairs[i] = fmt.Sprintf("%s=%q", of.labels[i], value)
	}
	key := strings.Join(pairs, ",")
	if m.series[of][key] == nil {
		m.series[of][key] = &series{labels: key, buckets: make([]uint64, len(of.bounds)+1)}
	}
	return m.series[of][key]
}

func (m *metrics) add(of *metric, amount float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(of, labels).sum += amount
}

func (m *metrics) observe(of *metric, value float64, labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.touch(of, labels)
	s.sum += value
	s.count++
	s.buckets[sort.Search(len(of.bounds), func(i int) bool { return value < of.bounds[i] })]++
}

// exportedName turns a registry path into a Prometheus name as the server does.
func exportedName(path string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return ':'
	}, path)
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', 6, 64) }

// page writes everything in Prometheus' text format, in a fixed order.
func (m *metrics) page() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var families []*metric
	for of := range m.series {
		families = append(families, of)
	}
	sort.Slice(families, func(i, j int) bool { return families[i].path < families[j].path })
	var page strings.Builder
	for _, of := range families {
		kind := "counter"
		if of.bounds != nil {
			kind = "histogram"
		}
		fmt.Fprintf(&page, "# TYPE %s %s\n", exportedName(of.path), kind)
		var keys []string
		for key := range m.series[of] {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			m.series[of][key].write(&page, of)
		}
	}
	return page.String()
}

func (s *series) write(page *strings.Builder, of *metric) {
	name := exportedName(of.path)
	if of.bounds == nil {
		fmt.Fprintf(page, "%s{%s} %s\n", name, s.labels, strconv.FormatFloat(s.sum, 'f', -1, 64))
		return
	}
	before := s.labels
	if before != "" {
		before += ","
	}
	total := uint64(0)
	for i, inBucket := range s.buckets {
		total += inBucket
		bound := "+Inf"
		if i < len(of.bounds) {
			bound = number(of.bounds[i])
		}
		fmt.Fprintf(page, "%s_bucket{%sle=%q} %d\n", name, before, bound, total)
	}
	fmt.Fprintf(page, "%s_sum{%s} %s\n", name, s.labels, strconv.FormatFloat(s.sum, 'f', -1, 64))
	fmt.Fprintf(page, "%s_count{%s} %d\n", name, s.labels, s.count)
}

func (m *metrics) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(m.page()))
}
