package main

import (
	"strings"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
)

// object is a JSON object of the Pulumi package schema.
type object = map[string]any

// packageSchema lists every resource and nested block with its inputs, by the names that go over the wire. It has no
// descriptions and no outputs: enough to compare the names with the Python SDK's.
func packageSchema(info tfbridge.ProviderInfo) object {
	listed, types := object{}, object{}
	for name, resource := range info.Resources {
		token := resource.Tok
		properties := inputProperties(info.P.ResourcesMap().Get(name).Schema(), resource.Fields, string(token.Name()), types)
		listed[token.String()] = object{"inputProperties": properties, "properties": properties}
	}
	config := inputProperties(info.P.Schema(), info.Config, "Provider", types)
	return object{
		"name":      info.Name,
		"version":   info.Version,
		"config":    object{"variables": config},
		"provider":  object{"inputProperties": config, "properties": config},
		"resources": listed,
		"types":     types,
	}
}

// inputProperties describes what can be set in a block, and adds the blocks nested in it to types.
func inputProperties(schema shim.SchemaMap, fields names, block string, types object) object {
	inputs := object{}
	schema.Range(func(key string, property shim.Schema) bool {
		if property.Optional() || property.Required() {
			name := tfbridge.TerraformToPulumiNameV2(key, schema, fields)
			inputs[name] = propertyType(property, block+strings.ToUpper(name[:1])+name[1:], types)
		}
		return true
	})
	return inputs
}

func propertyType(property shim.Schema, block string, types object) object {
	switch property.Type() {
	case shim.TypeString:
		return object{"type": "string"}
	case shim.TypeBool:
		return object{"type": "boolean"}
	case shim.TypeInt:
		return object{"type": "integer"}
	case shim.TypeFloat:
		return object{"type": "number"}
	}
	nested, isBlock := property.Elem().(shim.Resource)
	if !isBlock {
		return object{"$ref": "pulumi.json#/Any"}
	}
	token := "docker:index/" + block + ":" + block
	types[token] = object{"type": "object", "properties": inputProperties(nested.Schema(), nil, block, types)}
	if tfbridge.IsMaxItemsOne(property, nil) {
		return object{"$ref": "#/types/" + token}
	}
	return object{"type": "array", "items": object{"$ref": "#/types/" + token}}
}
