package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// Headers (REST) and metadata (gRPC: initial, or trailing with an error) that say who answered; the real server has neither.
const (
	gpuHeader   = "x-simulator-gpu"
	modelHeader = "x-simulator-model"
)

func servedBy(held *servable) string { return fmt.Sprintf("%s/%d", held.name, held.version) }

type predictionServer struct {
	wire.UnimplementedPredictionServiceServer
	*inference
}

// answer records a request and says who served it.
func answer[R any](ctx context.Context, i *inference, api, model string, run func(time.Time) (R, *servable, error)) (R, error) {
	start := time.Now()
	deadline, _ := ctx.Deadline()
	response, held, err := run(deadline)
	i.stats.add(requestCount, 1, model, codeName(status.Code(err)))
	if err == nil {
		i.stats.observe(requestLatency, float64(time.Since(start).Microseconds()), model, api, "GRPC")
	}
	header := metadata.Pairs(gpuHeader, i.core.manager.loader.gpu.name)
	if held != nil {
		header.Set(modelHeader, servedBy(held))
	}
	tell := grpc.SetHeader
	if err != nil {
		// The real server sends an error as trailers alone; what is begun by a header, Envoy cannot try again.
		tell = grpc.SetTrailer
	}
	_ = tell(ctx, header) // fails only where the client is gone
	return response, err
}

func (s *predictionServer) Predict(ctx context.Context, r *wire.PredictRequest) (*wire.PredictResponse, error) {
	return answer(ctx, s.inference, "Predict", r.GetModelSpec().GetName(), func(deadline time.Time) (*wire.PredictResponse, *servable, error) {
		return s.predict(r, deadline)
	})
}

func (s *predictionServer) Classify(ctx context.Context, r *wire.ClassificationRequest) (*wire.ClassificationResponse, error) {
	return answer(ctx, s.inference, "Classify", r.GetModelSpec().GetName(), func(deadline time.Time) (*wire.ClassificationResponse, *servable, error) {
		return s.classify(r, deadline)
	})
}

func (s *predictionServer) Regress(ctx context.Context, r *wire.RegressionRequest) (*wire.RegressionResponse, error) {
	return answer(ctx, s.inference, "Regress", r.GetModelSpec().GetName(), func(deadline time.Time) (*wire.RegressionResponse, *servable, error) {
		return s.regress(r, deadline)
	})
}

func (s *predictionServer) MultiInference(ctx context.Context, r *wire.MultiInferenceRequest) (*wire.MultiInferenceResponse, error) {
	model := ""
	if len(r.Tasks) > 0 {
		model = r.Tasks[0].GetModelSpec().GetName()
	}
	return answer(ctx, s.inference, "MultiInference", model, func(deadline time.Time) (*wire.MultiInferenceResponse, *servable, error) {
		return s.multiInference(r, deadline)
	})
}

func (s *predictionServer) GetModelMetadata(_ context.Context, r *wire.GetModelMetadataRequest) (*wire.GetModelMetadataResponse, error) {
	return s.metadata(r)
}

type modelServer struct {
	wire.UnimplementedModelServiceServer
	core *core
}

func (s *modelServer) GetModelStatus(_ context.Context, r *wire.GetModelStatusRequest) (*wire.GetModelStatusResponse, error) {
	return s.core.modelStatus(r)
}

func (s *modelServer) HandleReloadConfigRequest(_ context.Context, r *wire.ReloadConfigRequest) (*wire.ReloadConfigResponse, error) {
	err := invalid("ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently supported")
	if r.GetConfig().GetModelConfigList() != nil {
		err = s.core.reload(r.Config)
	}
	if err != nil {
		log.Printf("E ReloadConfig failed: %s", describe(err))
	}
	return &wire.ReloadConfigResponse{Status: statusProto(err)}, err
}

// profilerServer answers as long as --enable_profiler is on, without asking who calls: as the real one does.
type profilerServer struct {
	wire.UnimplementedProfilerServiceServer
}

func (profilerServer) Monitor(context.Context, *wire.MonitorRequest) (*wire.MonitorResponse, error) {
	return &wire.MonitorResponse{Data: "simulated profiler\n"}, nil
}

// threadQuota refuses calls beyond the number of threads: each call in flight blocks one.
func threadQuota(threads int32) grpc.UnaryServerInterceptor {
	slots := make(chan struct{}, threads)
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			return handle(ctx, request)
		default:
			return nil, status.Error(codes.ResourceExhausted, "Server Threadpool Exhausted")
		}
	}
}

func newGRPCServer(o *options, i *inference) (*grpc.Server, error) {
	settings := []grpc.ServerOption{grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32)}
	settings = append(settings, channelArguments(o.grpcChannelArguments)...)
	if o.grpcMaxThreads > 0 {
		settings = append(settings, grpc.UnaryInterceptor(threadQuota(o.grpcMaxThreads)))
	}
	if o.sslConfigFile != "" {
		secured, err := serverCredentials(o.sslConfigFile)
		if err != nil {
			return nil, &refusal{134, fmt.Sprintf("%s (the real server aborts here)", describe(err))}
		}
		settings = append(settings, grpc.Creds(secured))
	}
	server := grpc.NewServer(settings...)
	wire.RegisterPredictionServiceServer(server, &predictionServer{inference: i})
	wire.RegisterModelServiceServer(server, &modelServer{core: i.core})
	if o.enableProfiler {
		log.Printf("I Profiler service is enabled")
		wire.RegisterProfilerServiceServer(server, profilerServer{})
	}
	if o.enableHealth {
		alive := health.NewServer() // knows "" already; set once, and never turned back
		alive.SetServingStatus("ModelService", healthpb.HealthCheckResponse_SERVING)
		alive.SetServingStatus("PredictionService", healthpb.HealthCheckResponse_SERVING)
		healthpb.RegisterHealthServer(server, alive)
	}
	return server, nil
}

// serverCredentials takes the keys themselves out of the file, not paths to them.
func serverCredentials(file string) (credentials.TransportCredentials, error) {
	ssl := &wire.SSLConfig{}
	if err := readTextProto(file, ssl); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(ssl.ServerCert), []byte(ssl.ServerKey))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ssl.ClientVerify {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM([]byte(ssl.CustomCa))
	}
	return credentials.NewTLS(config), nil
}

// serveGRPC listens on IPv4 alone, and on a socket where one is named.
func serveGRPC(server *grpc.Server, o *options, address string) error {
	if address == "" {
		address = "0.0.0.0"
	}
	var listeners []net.Listener
	if o.port != 0 {
		listener, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", address, o.port))
		if err != nil {
			return invalid("Failed to BuildAndStart gRPC server: %s", err)
		}
		listeners = append(listeners, listener)
		log.Printf("I Running gRPC ModelServer at 0.0.0.0:%d ...", o.port)
	}
	if o.grpcSocketPath != "" {
		listener, err := net.Listen("unix", o.grpcSocketPath)
		if err != nil {
			return invalid("Failed to BuildAndStart gRPC server: %s", err)
		}
		listeners = append(listeners, listener)
		log.Printf("I Running gRPC ModelServer at UNIX socket %s ...", o.grpcSocketPath)
	}
	for _, listener := range listeners {
		go func() { _ = server.Serve(listener) }()
	}
	return nil
}
