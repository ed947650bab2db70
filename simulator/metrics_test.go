package main

import (
	"strings"
	"testing"
)

func TestABucketEndsBeforeItsBound(t *testing.T) {
	m := newMetrics()
	for _, value := range []float64{9, 10, 17} {
		m.observe(requestLatency, value, "m", "predict", "REST")
	}
	page := m.page()
	const labels = `model_name="m",API="predict",entrypoint="REST"`
	for _, want := range []string{
		`:tensorflow:serving:request_latency_bucket{` + labels + `,le="10"} 1`,
		`:tensorflow:serving:request_latency_bucket{` + labels + `,le="18"} 3`,
		`:tensorflow:serving:request_latency_bucket{` + labels + `,le="+Inf"} 3`,
		`:tensorflow:serving:request_latency_sum{` + labels + `} 36`,
		`:tensorflow:serving:request_latency_count{` + labels + `} 3`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s in\n%s", want, page)
		}
	}
}

func TestLabelsAreEscaped(t *testing.T) {
	m := newMetrics()
	m.add(requestCount, 1, `a"b\`, "OK")
	if want := `:tensorflow:serving:request_count{model_name="a\"b\\",status="OK"} 1`; !strings.Contains(m.page(), want) {
		t.Errorf("no %s in\n%s", want, m.page())
	}
}
