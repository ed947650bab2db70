package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tf-serving-simulator/internal/wire"
)

func errorJSON(err error) string {
	text, _ := json.Marshal(status.Convert(err).Message())
	return fmt.Sprintf("{ \"error\": %s }", text)
}

// messageJSON writes a message with the fields' own names, and those that are unset too.
//
// It is indented by another library: protojson puts one blank after a colon in some builds and two in others, on
// purpose, and clients look for `"state": "AVAILABLE"` as the real server writes it.
func messageJSON(message proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return "", err
	}
	var indented bytes.Buffer
	err = json.Indent(&indented, text, "", " ")
	return indented.String() + "\n", err
}

// metadataJSON shows the signatures themselves where the message holds them packed.
func metadataJSON(response *wire.GetModelMetadataResponse) (string, error) {
	spec, err := messageJSON(&wire.ModelSpec{
		Name: response.ModelSpec.Name, VersionChoice: response.ModelSpec.VersionChoice,
	})
	if err != nil {
		return "", err
	}
	signatures, err := messageJSON(signatureMap())
	return fmt.Sprintf("{\n\"model_spec\": %s,\n\"metadata\": {\"signature_def\": %s}\n}\n",
		strings.TrimSpace(spec), strings.TrimSpace(signatures)), err
}

func parseJSON(body []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, invalid("JSON Parse error: The document is empty")
	}
	var document any
	if err := json.Unmarshal(body, &document); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, invalid("JSON Parse error: Invalid value. at offset: %d", syntax.Offset)
		}
		return nil, invalid("JSON Parse error: %s", err)
	}
	object, ok := document.(map[string]any)
	if !ok {
		return nil, invalid("JSON Value: %s Is not object", text(document))
	}
	return object, nil
}

// text shows a JSON value in an error.
func text(value any) string {
	shown, _ := json.Marshal(value)
	return string(shown)
}

func signatureName(document map[string]any) (string, error) {
	value, found := document["signature_name"]
	if !found {
		return "", nil
	}
	name, ok := value.(string)
	if !ok {
		return "", invalid("JSON Value: %s not formatted correctly. 'signature_name' key must be a string value.", text(value))
	}
	return name, nil
}

// predictTensor reads the row format ("instances") or the column format ("inputs") for a signature with one input.
func predictTensor(document map[string]any, input string) (x tensor, byRow bool, err error) {
	instances, byRow := document["instances"]
	inputs, byColumn := document["inputs"]
	switch {
	case byRow && byColumn:
		return x, false, invalid("JSON Value: %s Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
			text(document))
	case byColumn:
		if object, ok := inputs.(map[string]any); ok {
			if inputs, ok = object[input]; !ok {
				return x, false, invalid("Missing named input: %s in 'inputs' object.", input)
			}
		}
		x, err = tensorFromJSON(inputs)
		return x, false, err
	case !byRow:
		return x, false, invalid("Missing 'inputs' or 'instances' key")
	}
	rows, ok := instances.([]any)
	if !ok {
		return x, true, invalid("JSON Value: %s Expecting 'instances' to be an list/array", text(document))
	}
	if len(rows) == 0 {
		return x, true, invalid("JSON Value: %s No values in 'instances' array", text(document))
	}
	values, err := plainRows(rows, input)
	if err != nil {
		return x, true, err
	}
	x, err = tensorFromJSON(values)
	return x, true, err
}

// plainRows unwraps {"x": value} rows: either all rows are objects, or none.
func plainRows(rows []any, input string) ([]any, error) {
	_, named := rows[0].(map[string]any)
	plain := make([]any, len(rows))
	for i, row := range rows {
		object, isObject := row.(map[string]any)
		switch {
		case named && !isObject:
			return nil, invalid("Expecting object but got list at item %d of input list", i)
		case !named && isObject:
			return nil, invalid("Expecting value/list but got object at item %d of input list", i)
		case !named:
			plain[i] = row
			continue
		}
		keys := make([]string, 0, len(object))
		for key := range object {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			if key != input {
				return nil, invalid("Failed to process element: %d key: %s of 'instances' list. Error: INVALID_ARGUMENT:"+
					" JSON object: does not have named input: %s", i, key, key)
			}
		}
		if len(keys) != 1 {
			return nil, invalid("Failed to process element: %d of 'instances' list. JSON object: %s keys must be equal to: %s",
				i, text(row), input)
		}
		plain[i] = object[input]
	}
	return plain, nil
}

// tensorFromJSON takes the shape from the first element at each depth, and holds every other element to it.
func tensorFromJSON(value any) (tensor, error) {
	x := tensor{shape: []int64{}}
	for at := value; ; {
		list, ok := at.([]any)
		if !ok {
			break
		}
		x.shape = append(x.shape, int64(len(list)))
		if len(list) == 0 {
			break
		}
		at = list[0]
	}
	err := x.fill(value, 0)
	return x, err
}

func (t *tensor) fill(value any, level int) error {
	list, isList := value.([]any)
	switch {
	case !isList && level < len(t.shape):
		return invalid("JSON Value: %s found at incorrect level: %d in the JSON DOM. Expected at level: %d",
			text(value), level+1, len(t.shape))
	case !isList:
		number, ok := value.(float64)
		if !ok {
			return invalid("JSON Value: %s Type: %s is not of expected type: float", text(value), jsonType(value))
		}
		t.values = append(t.values, float32(number))
		return nil
	case level >= len(t.shape):
		return invalid("Encountered list at unexpected level: %d expected < %d", level, len(t.shape))
	case int64(len(list)) != t.shape[level]:
		return invalid("Encountered list at unexpected size: %d at level: %d expected size: %d", len(list), level, t.shape[level])
	}
	for _, element := range list {
		if err := t.fill(element, level+1); err != nil {
			return err
		}
	}
	return nil
}

func jsonType(value any) string {
	switch value := value.(type) {
	case nil:
		return "Null"
	case bool:
		return map[bool]string{true: "True", false: "False"}[value]
	case string:
		return "String"
	case []any:
		return "Array"
	case map[string]any:
		return "Object"
	}
	return "Number"
}

// examplesFromJSON reads {"context": {...}, "examples": [{...}, ...]}.
func examplesFromJSON(document map[string]any) (*wire.Input, error) {
	given, ok := document["examples"].([]any)
	if !ok {
		return nil, invalid("JSON Value: %s Expecting 'examples' value to be an list/array", text(document))
	}
	list := &wire.ExampleListWithContext{}
	for _, value := range given {
		example, err := exampleFromJSON(value)
		if err != nil {
			return nil, err
		}
		list.Examples = append(list.Examples, example)
	}
	context, found := document["context"]
	if !found {
		return &wire.Input{Kind: &wire.Input_ExampleList{ExampleList: &wire.ExampleList{Examples: list.Examples}}}, nil
	}
	var err error
	list.Context, err = exampleFromJSON(context)
	return &wire.Input{Kind: &wire.Input_ExampleListWithContext{ExampleListWithContext: list}}, err
}

func exampleFromJSON(value any) (*wire.Example, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, invalid("Example must be JSON object but got JSON %s", jsonType(value))
	}
	features := map[string]*wire.Feature{}
	for name, value := range object {
		feature, err := featureFromJSON(name, value)
		if err != nil {
			return nil, err
		}
		features[name] = feature
	}
	return &wire.Example{Features: &wire.Features{Feature: features}}, nil
}

// featureFromJSON takes numbers, strings, {"b64": ...} bytes, or a list of one kind of them.
func featureFromJSON(name string, value any) (*wire.Feature, error) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var floats []float32
	var raw [][]byte
	for _, element := range list {
		switch element := element.(type) {
		case float64:
			floats = append(floats, float32(element))
			continue
		case string:
			raw = append(raw, []byte(element))
			continue
		case map[string]any:
			encoded, _ := element["b64"].(string)
			if decoded, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(element) == 1 {
				raw = append(raw, decoded)
				continue
			}
		}
		return nil, invalid("Feature: %s has element with unexpected JSON type: %s", name, jsonType(element))
	}
	if len(floats) > 0 && len(raw) > 0 {
		return nil, invalid("Unexpected element type in feature: %s expecting type: float", name)
	}
	if len(raw) > 0 {
		return &wire.Feature{Kind: &wire.Feature_BytesList{BytesList: &wire.BytesList{Value: raw}}}, nil
	}
	return &wire.Feature{Kind: &wire.Feature_FloatList{FloatList: &wire.FloatList{Value: floats}}}, nil
}

func predictJSON(y tensor, byRow bool) string {
	key := "outputs"
	if byRow {
		key = "predictions"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "{\n    %q: ", key)
	y.write(&b, 0, 0)
	b.WriteString("\n}")
	return b.String()
}

// write prints one element of dimension `level`, which begins at value `from`, and gives where the next one begins.
func (t tensor) write(b *strings.Builder, level, from int) int {
	if level == len(t.shape) {
		b.WriteString(floatJSON(t.values[from]))
		return from + 1
	}
	b.WriteByte('[')
	for i := range t.shape[level] {
		if i > 0 {
			b.WriteString(", ")
		}
		from = t.write(b, level+1, from)
	}
	b.WriteByte(']')
	return from
}

// floatJSON always shows a float as one, with the shortest digits that give it back.
func floatJSON(value float32) string {
	wide := float64(value)
	if math.IsNaN(wide) {
		return "NaN"
	}
	if math.IsInf(wide, 0) {
		return strings.Replace(strconv.FormatFloat(wide, 'f', -1, 32), "+", "", 1) + "inity"
	}
	shown := strconv.FormatFloat(wide, 'g', -1, 32)
	if !strings.ContainsAny(shown, ".e") {
		shown += ".0"
	}
	return shown
}

func classifyJSON(response *wire.ClassificationResponse) string {
	var rows []string
	for _, one := range response.GetResult().GetClassifications() {
		var classes []string
		for _, class := range one.Classes {
			classes = append(classes, fmt.Sprintf("[%s, %s]", text(class.Label), floatJSON(class.Score)))
		}
		rows = append(rows, "["+strings.Join(classes, ", ")+"]")
	}
	return fmt.Sprintf("{\n    \"results\": [%s]\n}", strings.Join(rows, ", "))
}

func regressJSON(response *wire.RegressionResponse) string {
	var values []string
	for _, one := range response.GetResult().GetRegressions() {
		values = append(values, floatJSON(one.Value))
	}
	return fmt.Sprintf("{\n    \"results\": [%s]\n}", strings.Join(values, ", "))
}
