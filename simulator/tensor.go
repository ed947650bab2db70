package main

import (
	"encoding/binary"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// tensor holds float32 values in row-major order: the only type that half_plus_two takes.
type tensor struct {
	shape  []int64
	values []float32
}

// count multiplies up the shape; -1 where it overflows or a dimension is negative.
func count(shape []int64) int64 {
	total := int64(1)
	for _, size := range shape {
		if size < 0 || (size > 0 && total > math.MaxInt32/size) {
			return -1
		}
		total *= size
	}
	return total
}

func tensorFromProto(p *wire.TensorProto) (tensor, error) {
	if p.GetDtype() != wire.DataType_DT_FLOAT {
		return tensor{}, invalid("Expected a tensor of type float for input x, got %s", p.GetDtype())
	}
	var t tensor
	for _, dim := range p.GetTensorShape().GetDim() {
		t.shape = append(t.shape, dim.Size)
	}
	total := count(t.shape)
	if total < 0 {
		return tensor{}, invalid("tensor parsing error: x")
	}
	switch content, given := p.TensorContent, p.FloatVal; {
	case len(content) > 0:
		if int64(len(content)) != 4*total {
			return tensor{}, invalid("tensor parsing error: x")
		}
		t.values = make([]float32, total)
		for i := range t.values {
			t.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(content[4*i:]))
		}
	case int64(len(given)) > total:
		return tensor{}, invalid("tensor parsing error: x")
	default: // too few values: the last one fills the rest
		t.values = make([]float32, total)
		for i := range t.values {
			if len(given) > 0 {
				t.values[i] = given[min(i, len(given)-1)]
			}
		}
	}
	return t, nil
}

func (t tensor) proto(asContent bool) *wire.TensorProto {
	p := &wire.TensorProto{Dtype: wire.DataType_DT_FLOAT, TensorShape: shapeProto(t.shape...)}
	if !asContent {
		p.FloatVal = t.values
		return p
	}
	for _, value := range t.values {
		p.TensorContent = binary.LittleEndian.AppendUint32(p.TensorContent, math.Float32bits(value))
	}
	return p
}

func shapeProto(sizes ...int64) *wire.TensorShapeProto {
	shape := &wire.TensorShapeProto{}
	for _, size := range sizes {
		shape.Dim = append(shape.Dim, &wire.TensorShapeProto_Dim{Size: size})
	}
	return shape
}

// halfPlusTwo is the model that every version computes.
func halfPlusTwo(x tensor) tensor {
	y := tensor{shape: x.shape, values: make([]float32, len(x.values))}
	for i, value := range x.values {
		y.values[i] = 0.5*value + 2
	}
	return y
}

// examples cuts a tensor into rows [from, to) of its first dimension.
func (t tensor) examples(from, to int64) tensor {
	width := int64(0)
	if t.shape[0] > 0 {
		width = int64(len(t.values)) / t.shape[0]
	}
	shape := append([]int64{to - from}, t.shape[1:]...)
	return tensor{shape: shape, values: t.values[from*width : to*width]}
}

func join(parts []tensor) tensor {
	whole := tensor{shape: append([]int64{}, parts[0].shape...)}
	whole.shape[0] = 0
	for _, part := range parts {
		whole.shape[0] += part.shape[0]
		whole.values = append(whole.values, part.values...)
	}
	return whole
}

// checkSameShapes is the rule for what may share a batch: all dimensions but the first agree, or are padded.
func checkSameShapes(parts []tensor, pad bool) error {
	for _, part := range parts {
		if len(part.shape) != len(parts[0].shape) {
			return status.Error(codes.FailedPrecondition, "Tensors with name 'x' from different tasks have different ranks")
		}
		for i := 1; i < len(part.shape); i++ {
			if part.shape[i] != parts[0].shape[i] && !pad {
				return status.Error(codes.FailedPrecondition, "Tensors with name 'x' from different tasks have different"+
					" shapes and padding is turned off. Set pad_variable_length_inputs to true, or ensure that all tensors"+
					" with the same name have equal dimensions starting with the first dim.")
			}
		}
		if pad && len(part.shape) > 6 {
			return invalid("Only tensors with rank from 1 to 6 can be padded.")
		}
	}
	return nil
}

// padded grows every dimension but the first to that of the largest part, filling with the part's own first value.
func padded(parts []tensor) []tensor {
	largest := append([]int64{}, parts[0].shape...)
	for _, part := range parts {
		for i := 1; i < len(largest); i++ {
			largest[i] = max(largest[i], part.shape[i])
		}
	}
	grown := make([]tensor, len(parts))
	for i, part := range parts {
		grown[i] = part.grow(largest)
	}
	return grown
}

func (t tensor) grow(largest []int64) tensor {
	shape := append([]int64{t.shape[0]}, largest[1:]...)
	values := make([]float32, max(0, count(shape)))
	for i := range values {
		from, inside, stride := 0, true, 1
		rest := i
		for d := len(shape) - 1; d >= 0; d-- {
			at := rest % int(shape[d])
			rest /= int(shape[d])
			inside = inside && int64(at) < t.shape[d]
			from += at * stride
			stride *= int(t.shape[d])
		}
		if inside {
			values[i] = t.values[from]
		} else if len(t.values) > 0 {
			values[i] = t.values[0]
		}
	}
	return tensor{shape: shape, values: values}
}
