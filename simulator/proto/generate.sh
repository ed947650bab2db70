#!/bin/sh
# Makes internal/wire/*.pb.go from the .proto files. Needs grpcio-tools in .venv and `go`; run it after editing a .proto.
set -eu
cd "$(dirname "$0")"
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
(cd .. && go build -o "$plugins/" tool)
options=module=tf-serving-simulator
for file in *.proto; do
    options="$options,M$file=tf-serving-simulator/internal/wire"
done
../../.venv/bin/python -m grpc_tools.protoc -I. \
    --plugin="$plugins/protoc-gen-go" --go_out=.. --go_opt="$options" \
    --plugin="$plugins/protoc-gen-go-grpc" --go-grpc_out=.. --go-grpc_opt="$options" \
    ./*.proto
