// Command pulumi-resource-docker serves the Terraform Docker provider to the Pulumi engine.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
)

// version is the version of the Python SDK that talks to this plugin; the linker sets it.
var version = "0.0.0"

func main() {
	info := providerInfo(version)
	schema, err := json.Marshal(packageSchema(info))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tfbridge.Main("docker", version, info, schema)
}
