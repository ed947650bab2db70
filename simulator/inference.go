package main

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tf-serving-simulator/internal/wire"
)

const (
	defaultSignature = "serving_default"
	methodPredict    = "tensorflow/serving/predict"
	methodClassify   = "tensorflow/serving/classify"
	methodRegress    = "tensorflow/serving/regress"
)

// inference answers requests for both REST and gRPC.
type inference struct {
	core    *core
	stats   *metrics
	options *options
}

// signatureFor gives the name of the signature to use, and checks that it suits the method.
func (i *inference) signatureFor(spec *wire.ModelSpec, method string) (string, error) {
	name := spec.GetSignatureName()
	if name == "" {
		name = defaultSignature
	}
	own, found := signatures[name]
	switch {
	case !found && method == methodPredict:
		return "", invalid("Serving signature key \"%s\" not found.", name)
	case !found:
		return "", invalid("No signature was found with the name: %s", name)
	case own != method && i.options.methodNameCheck:
		return "", invalid("Expected signature method_name to be %s. Was: %s", method, own)
	case own != method && method != methodPredict:
		return "", invalid("No classification or regression inputs found in SignatureDef %s", name)
	case own != method:
		return "", invalid("input tensor alias not found in signature: x. Inputs expected to be in the set {inputs}.")
	}
	return name, nil
}

func (i *inference) predict(request *wire.PredictRequest, deadline time.Time) (*wire.PredictResponse, *servable, error) {
	if request.GetModelSpec() == nil {
		return nil, nil, invalid("Missing ModelSpec")
	}
	held, err := i.core.acquire(request.ModelSpec)
	if err != nil {
		return nil, nil, err
	}
	defer held.inUse.Done()
	signature, err := i.signatureFor(request.ModelSpec, methodPredict)
	if err != nil {
		return nil, held, err
	}
	x, err := predictInput(request)
	if err != nil {
		return nil, held, err
	}
	y, err := i.run(held, "Predict", signature, x, deadline)
	if err != nil {
		return nil, held, err
	}
	return &wire.PredictResponse{
		Outputs:   map[string]*wire.TensorProto{"y": y.proto(i.options.serializeAsTensorContent)},
		ModelSpec: heldSpec(held, signature),
	}, held, nil
}

func predictInput(request *wire.PredictRequest) (tensor, error) {
	if n := len(request.Inputs); n != 1 {
		return tensor{}, invalid("input size does not match signature: %d!=1", n)
	}
	for name := range request.Inputs {
		if name != "x" {
			return tensor{}, invalid("input tensor alias not found in signature: %s. Inputs expected to be in the set {x}.", name)
		}
	}
	for at, name := range request.OutputFilter {
		if name != "y" {
			return tensor{}, invalid("output tensor alias not found in signature: %s Outputs expected to be in the set {y}.", name)
		}
		if slices.Contains(request.OutputFilter[:at], name) {
			return tensor{}, invalid("duplicate output tensor alias: %s", name)
		}
	}
	return tensorFromProto(request.Inputs["x"])
}

// run executes and records how long it took, the wait for a batch included.
func (i *inference) run(held *servable, api, signature string, x tensor, deadline time.Time) (tensor, error) {
	start := time.Now()
	y, err := held.run(signature, x, deadline)
	if err == nil {
		i.stats.observe(runtimeLatency, float64(time.Since(start).Microseconds()), held.name, api, "TF1")
	}
	return y, err
}

func heldSpec(held *servable, signature string) *wire.ModelSpec {
	return &wire.ModelSpec{
		Name:          held.name,
		VersionChoice: &wire.ModelSpec_Version{Version: wrapperspb.Int64(held.version)},
		SignatureName: signature,
	}
}

// score is what classification and regression share: one value of y for the feature x of every example.
func (i *inference) score(spec *wire.ModelSpec, input *wire.Input, method, api string, deadline time.Time) (tensor, *wire.ModelSpec, *servable, error) {
	if spec == nil {
		return tensor{}, nil, nil, invalid("Missing ModelSpec")
	}
	held, err := i.core.acquire(spec)
	if err != nil {
		return tensor{}, nil, nil, err
	}
	defer held.inUse.Done()
	signature, err := i.signatureFor(spec, method)
	if err != nil {
		return tensor{}, nil, held, err
	}
	x, err := exampleInput(input)
	if err != nil {
		return tensor{}, nil, held, err
	}
	y, err := i.run(held, api, signature, x, deadline)
	return y, heldSpec(held, signature), held, err
}

func exampleInput(input *wire.Input) (tensor, error) {
	examples := input.GetExampleList().GetExamples()
	context := map[string]*wire.Feature{}
	if with := input.GetExampleListWithContext(); with != nil {
		examples = with.Examples
		context = with.GetContext().GetFeatures().GetFeature()
	}
	if len(examples) == 0 {
		return tensor{}, invalid("Input is empty.")
	}
	x := tensor{shape: []int64{int64(len(examples))}}
	for at, example := range examples {
		feature, found := example.GetFeatures().GetFeature()["x"]
		if !found {
			feature = context["x"]
		}
		values := feature.GetFloatList().GetValue()
		if len(values) != 1 {
			return tensor{}, invalid("Name: <unknown>, Feature: x (data type: float) is required but could not be found."+
				" (example %d must have one float x)", at)
		}
		x.values = append(x.values, values[0])
	}
	return x, nil
}

func (i *inference) classify(request *wire.ClassificationRequest, deadline time.Time) (*wire.ClassificationResponse, *servable, error) {
	y, spec, held, err := i.score(request.GetModelSpec(), request.GetInput(), methodClassify, "Classify", deadline)
	if err != nil {
		return nil, held, err
	}
	return &wire.ClassificationResponse{Result: classification(y), ModelSpec: spec}, held, nil
}

func classification(y tensor) *wire.ClassificationResult {
	result := &wire.ClassificationResult{}
	for _, value := range y.values {
		one := &wire.Classifications{Classes: []*wire.Class{{Score: value}}}
		result.Classifications = append(result.Classifications, one)
	}
	return result
}

func (i *inference) regress(request *wire.RegressionRequest, deadline time.Time) (*wire.RegressionResponse, *servable, error) {
	y, spec, held, err := i.score(request.GetModelSpec(), request.GetInput(), methodRegress, "Regress", deadline)
	if err != nil {
		return nil, held, err
	}
	return &wire.RegressionResponse{Result: regression(y), ModelSpec: spec}, held, nil
}

func regression(y tensor) *wire.RegressionResult {
	result := &wire.RegressionResult{}
	for _, value := range y.values {
		result.Regressions = append(result.Regressions, &wire.Regression{Value: value})
	}
	return result
}

// multiInference runs several classify and regress tasks of one model over the same examples.
func (i *inference) multiInference(request *wire.MultiInferenceRequest, deadline time.Time) (*wire.MultiInferenceResponse, *servable, error) {
	if len(request.Tasks) == 0 {
		return nil, nil, invalid("Missing tasks")
	}
	response := &wire.MultiInferenceResponse{}
	var held *servable
	for _, task := range request.Tasks {
		if task.GetModelSpec().GetName() != request.Tasks[0].GetModelSpec().GetName() {
			return nil, held, invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
		}
		y, spec, used, err := i.score(task.GetModelSpec(), request.GetInput(), task.MethodName, "MultiInference", deadline)
		held = used
		if err != nil {
			return nil, held, err
		}
		result := &wire.InferenceResult{ModelSpec: spec}
		switch task.MethodName {
		case methodClassify:
			result.Result = &wire.InferenceResult_ClassificationResult{ClassificationResult: classification(y)}
		case methodRegress:
			result.Result = &wire.InferenceResult_RegressionResult{RegressionResult: regression(y)}
		}
		response.Results = append(response.Results, result)
		i.stats.observe(exampleCounts, float64(len(y.values)), spec.Name)
		i.stats.add(exampleTotal, float64(len(y.values)), spec.Name)
	}
	return response, held, nil
}

// signatureMap describes the model as its metadata would.
func signatureMap() *wire.SignatureDefMap {
	column := func(name string) *wire.TensorInfo {
		return &wire.TensorInfo{
			Encoding: &wire.TensorInfo_Name{Name: name}, Dtype: wire.DataType_DT_FLOAT, TensorShape: shapeProto(-1, 1),
		}
	}
	examples := map[string]*wire.TensorInfo{"inputs": {
		Encoding: &wire.TensorInfo_Name{Name: "tf_example:0"}, Dtype: wire.DataType_DT_STRING,
		TensorShape: &wire.TensorShapeProto{UnknownRank: true},
	}}
	outputs := map[string]string{methodPredict: "y", methodClassify: "scores", methodRegress: "outputs"}
	all := map[string]*wire.SignatureDef{}
	for name, method := range signatures {
		inputs := examples
		if method == methodPredict {
			inputs = map[string]*wire.TensorInfo{"x": column("x:0")}
		}
		all[name] = &wire.SignatureDef{
			Inputs: inputs, Outputs: map[string]*wire.TensorInfo{outputs[method]: column("y:0")}, MethodName: method,
		}
	}
	return &wire.SignatureDefMap{SignatureDef: all}
}

func (i *inference) metadata(request *wire.GetModelMetadataRequest) (*wire.GetModelMetadataResponse, error) {
	if request.GetModelSpec() == nil {
		return nil, invalid("Missing ModelSpec")
	}
	if len(request.MetadataField) == 0 {
		return nil, invalid("GetModelMetadataRequest must specify at least one metadata_field")
	}
	for _, field := range request.MetadataField {
		if field != "signature_def" {
			return nil, invalid("Metadata field %s is not supported", field)
		}
	}
	held, err := i.core.acquire(request.ModelSpec)
	if err != nil {
		return nil, err
	}
	defer held.inUse.Done()
	signatures, err := anypb.New(signatureMap())
	if err != nil {
		return nil, err
	}
	return &wire.GetModelMetadataResponse{
		ModelSpec: heldSpec(held, ""), Metadata: map[string]*anypb.Any{"signature_def": signatures},
	}, nil
}
