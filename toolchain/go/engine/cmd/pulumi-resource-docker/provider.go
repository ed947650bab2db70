package main

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/terraform-providers/terraform-provider-docker/internal/provider"
)

// The bridge makes names plural when a list holds many; where the official plugin keeps the singular, its name is here.
type names = map[string]*tfbridge.SchemaInfo

var (
	resources = map[string]*tfbridge.ResourceInfo{
		"docker_buildx_builder": resource("BuildxBuilder", nil),
		"docker_config":         resource("ServiceConfig", nil),
		"docker_container": resource("Container", names{
			"command":           {Name: "command"},
			"networks_advanced": {Name: "networksAdvanced"},
		}),
		"docker_image":          resource("RemoteImage", names{"name": {Name: "name"}}),
		"docker_network":        resource("Network", nil),
		"docker_plugin":         resource("Plugin", nil),
		"docker_registry_image": resource("RegistryImage", nil),
		"docker_secret":         resource("Secret", nil),
		"docker_service":        resource("Service", nil),
		"docker_tag":            resource("Tag", nil),
		"docker_volume":         resource("Volume", nil),
	}
	functions = map[string]*tfbridge.DataSourceInfo{
		"docker_image":                    function("getRemoteImage"),
		"docker_logs":                     function("getLogs"),
		"docker_network":                  function("getNetwork"),
		"docker_plugin":                   function("getPlugin"),
		"docker_registry_image":           function("getRegistryImage"),
		"docker_registry_image_manifests": function("getRegistryImageManifests"),
	}
)

// providerInfo maps the Terraform provider to the types and names that the official plugin uses, so that a stack can go
// from one plugin to the other without a change.
func providerInfo(version string) tfbridge.ProviderInfo {
	info := tfbridge.ProviderInfo{
		P:            shimv2.NewProvider(provider.New(version)()),
		Name:         "docker",
		Version:      version,
		MetadataInfo: tfbridge.NewProviderMetadata([]byte("{}")),
		Config: names{
			"registry_auth": {Name: "registryAuth", MaxItemsOne: tfbridge.False()},
		},
		Resources:   resources,
		DataSources: functions,
	}
	// Two containers can't share a name, a port or a GPU: the old one goes first.
	info.Resources["docker_container"].DeleteBeforeReplace = true
	info.SetAutonaming(255, "-")
	return info
}

func resource(name string, fields names) *tfbridge.ResourceInfo {
	return &tfbridge.ResourceInfo{Tok: tfbridge.MakeResource("docker", "index", name), Fields: fields}
}

func function(name string) *tfbridge.DataSourceInfo {
	return &tfbridge.DataSourceInfo{Tok: tfbridge.MakeDataSource("docker", "index", name)}
}
