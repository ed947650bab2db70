package main

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// codeName is how TensorFlow spells a status code, in logs, metrics and status messages.
func codeName(code codes.Code) string { return wire.Code(code).String() }

// describe is an error as the real server logs it.
func describe(err error) string {
	if s, ok := status.FromError(err); ok {
		return codeName(s.Code()) + ": " + s.Message()
	}
	return err.Error()
}

func statusProto(err error) *wire.StatusProto {
	s := status.Convert(err)
	return &wire.StatusProto{ErrorCode: wire.Code(s.Code()), ErrorMessage: s.Message()}
}

// httpStatus maps a status code to what the REST API answers.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	}
	return http.StatusInternalServerError
}
