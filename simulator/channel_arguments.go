package main

import (
	"log"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// channelArguments turns --grpc_channel_arguments (`name=value,name=value`) into what Go's gRPC server has of it.
// Others are taken too, as the real server does, and do nothing here; the log names them.
func channelArguments(text string) []grpc.ServerOption {
	var alive keepalive.ServerParameters
	durations := map[string]*time.Duration{
		"grpc.max_connection_age_ms":       &alive.MaxConnectionAge,
		"grpc.max_connection_age_grace_ms": &alive.MaxConnectionAgeGrace,
		"grpc.max_connection_idle_ms":      &alive.MaxConnectionIdle,
		"grpc.keepalive_time_ms":           &alive.Time,
		"grpc.keepalive_timeout_ms":        &alive.Timeout,
	}
	var settings []grpc.ServerOption
	for _, argument := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(argument, "=")
		number, err := strconv.ParseInt(value, 10, 32)
		switch to := durations[name]; {
		case argument == "":
		case err == nil && to != nil:
			*to = time.Duration(number) * time.Millisecond
		case err == nil && name == "grpc.max_concurrent_streams":
			settings = append(settings, grpc.MaxConcurrentStreams(uint32(number)))
		default:
			log.Printf("W --grpc_channel_arguments: %q has no effect in the simulator", argument)
		}
	}
	return append(settings, grpc.KeepaliveParams(alive))
}
