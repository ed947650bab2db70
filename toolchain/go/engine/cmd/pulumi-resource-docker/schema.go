package main

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
)

// object is a JSON object of the Pulumi package schema.
type object = map[string]any

// packageSchema lists every resource with its inputs by the names that go over the wire. It has no descriptions, and
// lists and nested blocks are of any type: enough to compare the names with the Python SDK's.
func packageSchema(info tfbridge.ProviderInfo) object {
	listed := object{}
	for name, resource := range info.Resources {
		schema := info.P.ResourcesMap().Get(name).Schema()
		inputs := inputProperties(schema, resource.Fields)
		listed[resource.Tok.String()] = object{"inputProperties": inputs, "properties": inputs}
	}
	config := inputProperties(info.P.Schema(), info.Config)
	return object{
		"name":      info.Name,
		"version":   info.Version,
		"config":    object{"variables": config},
		"provider":  object{"inputProperties": config, "properties": config},
		"resources": listed,
	}
}

func inputProperties(schema shim.SchemaMap, fields names) object {
	inputs := object{}
	schema.Range(func(name string, property shim.Schema) bool {
		if property.Optional() || property.Required() {
			inputs[tfbridge.TerraformToPulumiNameV2(name, schema, fields)] = propertyType(property)
		}
		return true
	})
	return inputs
}

func propertyType(property shim.Schema) object {
	switch property.Type() {
	case shim.TypeString:
		return object{"type": "string"}
	case shim.TypeBool:
		return object{"type": "boolean"}
	case shim.TypeInt:
		return object{"type": "integer"}
	case shim.TypeFloat:
		return object{"type": "number"}
	default:
		return object{"$ref": "pulumi.json#/Any"}
	}
}
