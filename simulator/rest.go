package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tf-serving-simulator/internal/wire"
)

const defaultMetricsPath = "/monitoring/prometheus/metrics"

// Paths are matched whole and in any case; a name or label holds neither a slash nor a colon.
var (
	apiPath = regexp.MustCompile(`(?i)^/v1/.*$`)
	askPath = regexp.MustCompile(`(?i)^/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?:(classify|regress|predict)$`)
	getPath = regexp.MustCompile(`(?i)^/v1/models(?:/([^/:]+))?(?:/versions/(\d+)|/labels/([^/:]+))?(?:/(metadata))?$`)
)

type restServer struct {
	*inference
	metricsPath string        // empty: no metrics
	workers     chan struct{} // one is taken for as long as a request lasts
}

func newRestServer(o *options, i *inference, monitoring *wire.MonitoringConfig) *restServer {
	s := &restServer{inference: i, workers: make(chan struct{}, o.restThreads)}
	if monitoring.GetPrometheusConfig().GetEnable() {
		s.metricsPath = monitoring.PrometheusConfig.Path
		if s.metricsPath == "" {
			s.metricsPath = defaultMetricsPath
		}
	}
	return s
}

func (s *restServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.workers <- struct{}{}
	defer func() { <-s.workers }()
	path := r.URL.EscapedPath()
	switch {
	case s.metricsPath != "" && path == s.metricsPath:
		s.stats.serve(w)
	case apiPath.MatchString(path):
		s.serveAPI(w, r, path)
	default:
		http.Error(w, "Not Found", http.StatusNotFound)
	}
}

// restAnswer is what a request came to, and what the metrics need to know of it.
type restAnswer struct {
	model, method string
	body          string
	held          *servable
	err           error
}

func (s *restServer) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	start := time.Now()
	var a restAnswer
	if r.Method == http.MethodOptions {
		if !strings.Contains(r.Header.Get("Origin"), "http://") && !strings.Contains(r.Header.Get("Origin"), "https://") {
			a.err = status.Error(codes.FailedPrecondition, "Origin header is missing in CORS preflight")
		}
	} else {
		a = s.dispatch(r, path)
	}
	if a.err != nil {
		a.body = errorJSON(a.err)
	}
	s.stats.add(requestCount, 1, a.model, codeName(status.Code(a.err)))
	if a.err == nil {
		s.stats.observe(requestLatency, float64(time.Since(start).Microseconds()), a.model, a.method, "REST")
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set(gpuHeader, s.core.manager.loader.gpu.name)
	if a.held != nil {
		header.Set(modelHeader, servedBy(a.held))
	}
	if s.options.cors {
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Allow-Methods", "POST, GET")
		header.Set("Access-Control-Allow-Headers", "Content-Type")
	}
	w.WriteHeader(httpStatus(status.Code(a.err)))
	_, _ = io.WriteString(w, a.body)
}

func (s *restServer) dispatch(r *http.Request, path string) (a restAnswer) {
	a.err = invalid("Malformed request: %s %s", r.Method, path)
	pattern := map[string]*regexp.Regexp{http.MethodPost: askPath, http.MethodGet: getPath}[r.Method]
	if pattern == nil {
		return a
	}
	parts := pattern.FindStringSubmatch(path)
	if parts == nil {
		return a
	}
	spec, err := specFromPath(parts[1], parts[2], parts[3])
	if err != nil {
		a.err = err
		return a
	}
	a.model = spec.Name
	if r.Method == http.MethodGet {
		a.body, a.err = s.get(spec, parts[4])
		return a
	}
	a.method = parts[4]
	if a.method != strings.ToLower(a.method) {
		return a // the path matches in any case, but a method is dispatched in this spelling alone
	}
	body, err := readBody(r)
	if err != nil {
		a.err = invalid("Could not read the request: %s", err)
		return a
	}
	a.body, a.held, a.err = s.ask(spec, a.method, body)
	return a
}

func specFromPath(name, version, label string) (*wire.ModelSpec, error) {
	spec := &wire.ModelSpec{}
	var err error
	if spec.Name, err = url.PathUnescape(name); err != nil {
		return nil, invalid("Failed to decode model name:%s", name)
	}
	if version != "" {
		number, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return nil, invalid("Failed to convert version: %s to numeric.", version)
		}
		spec.VersionChoice = &wire.ModelSpec_Version{Version: wrapperspb.Int64(number)}
	}
	if label != "" {
		decoded, err := url.PathUnescape(label)
		if err != nil {
			return nil, invalid("Failed to decode model version label:%s", label)
		}
		spec.VersionChoice = &wire.ModelSpec_VersionLabel{VersionLabel: decoded}
	}
	return spec, nil
}

func (s *restServer) get(spec *wire.ModelSpec, resource string) (string, error) {
	if spec.Name == "" {
		return "", invalid("Missing model name in request.")
	}
	if resource == "metadata" {
		response, err := s.metadata(&wire.GetModelMetadataRequest{ModelSpec: spec, MetadataField: []string{"signature_def"}})
		if err != nil {
			return "", err
		}
		return metadataJSON(response)
	}
	response, err := s.core.modelStatus(&wire.GetModelStatusRequest{ModelSpec: spec})
	if err != nil {
		return "", err
	}
	return messageJSON(response)
}

func (s *restServer) ask(spec *wire.ModelSpec, method string, body []byte) (string, *servable, error) {
	var deadline time.Time
	if s.options.restTimeoutMs > 0 {
		deadline = time.Now().Add(time.Duration(s.options.restTimeoutMs) * time.Millisecond)
	}
	if method == "predict" {
		return s.askPredict(spec, body, deadline)
	}
	return s.askExamples(spec, method, body, deadline)
}

func (s *restServer) askPredict(spec *wire.ModelSpec, body []byte, deadline time.Time) (string, *servable, error) {
	document, err := parseJSON(body)
	if err != nil {
		return "", nil, err
	}
	if spec.SignatureName, err = signatureName(document); err != nil {
		return "", nil, err
	}
	input, err := s.restInput(spec)
	if err != nil {
		return "", nil, err
	}
	x, byRow, err := predictTensor(document, input)
	if err != nil {
		return "", nil, err
	}
	request := &wire.PredictRequest{ModelSpec: spec, Inputs: map[string]*wire.TensorProto{input: x.proto(false)}}
	response, held, err := s.predict(request, deadline)
	if err != nil {
		return "", held, err
	}
	y, err := tensorFromProto(response.Outputs["y"])
	return predictJSON(y, byRow), held, err
}

// restInput names the input that the signature has; the server looks it up before it reads any value.
func (s *restServer) restInput(spec *wire.ModelSpec) (string, error) {
	held, err := s.core.acquire(spec)
	if err != nil {
		return "", err
	}
	held.inUse.Done()
	name := spec.SignatureName
	if name == "" {
		name = defaultSignature
	}
	method, found := signatures[name]
	if !found {
		return "", invalid("Serving signature name: \"%s\" not found in signature def", name)
	}
	if method != methodPredict {
		return "", invalid("JSON value is not of expected type: string (signature %s takes serialized examples)", name)
	}
	return "x", nil
}

func (s *restServer) askExamples(spec *wire.ModelSpec, method string, body []byte, deadline time.Time) (string, *servable, error) {
	document, err := parseJSON(body)
	if err != nil {
		return "", nil, err
	}
	if spec.SignatureName, err = signatureName(document); err != nil {
		return "", nil, err
	}
	input, err := examplesFromJSON(document)
	if err != nil {
		return "", nil, err
	}
	if method == "classify" {
		response, held, err := s.classify(&wire.ClassificationRequest{ModelSpec: spec, Input: input}, deadline)
		return classifyJSON(response), held, err
	}
	response, held, err := s.regress(&wire.RegressionRequest{ModelSpec: spec, Input: input}, deadline)
	return regressJSON(response), held, err
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(unzipped)
}

// serveREST listens on all addresses, of IPv6 too where there is any. A port that can't be had is only logged.
func serveREST(handler http.Handler, port int32, address string) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	if err != nil {
		log.Printf("E Failed to start HTTP Server at localhost:%d: %s", port, err)
		return
	}
	log.Printf("I Exporting HTTP/REST API at:localhost:%d ...", port)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { log.Printf("E HTTP server: %s", fmt.Sprint(server.Serve(listener))) }()
}
