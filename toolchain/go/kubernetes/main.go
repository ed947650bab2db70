// Command pulumi-resource-kubernetes serves the Kubernetes provider to the Pulumi engine.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// Both files come from the provider's own module; the build copies them here and sets the version in the first.
var (
	//go:embed schema.json
	schema []byte

	//go:embed terraform-mapping.json
	terraformMapping []byte
)

// version is the version of the Python SDK that talks to this plugin; the linker sets it.
var version = "0.0.0"

func main() { provider.Serve("kubernetes", version, schema, terraformMapping) }
