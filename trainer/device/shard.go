package device

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/distributed"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
)

// Axes of a Mesh, as sharding specs name them.
const (
	AxisData  = "data"
	AxisModel = "model"
)

// Mesh arranges the devices of one host. The rows of a batch are divided over the data axis;
// heads, feed-forward columns and the vocabulary over the model axis (Megatron-LM, arXiv
// 1909.08053, section 3). With FSDP the other dimension of each matrix is divided over the data
// axis as well, so that a weight, its gradient and its moments are stored once, not once a
// data replica (ZeRO stage 3, arXiv 1910.02054, section 5).
type Mesh struct {
	Data, Model int
	FSDP        bool
}

// NumDevices is the number of devices of the mesh.
func (m Mesh) NumDevices() int { return m.Data * m.Model }

// Several reports whether the mesh has more than one device. The zero mesh is one.
func (m Mesh) Several() bool { return m.Data > 1 || m.Model > 1 }

// ParseMesh reads "data=4,model=2". A missing axis has one device. A mesh with several devices
// on the data axis is FSDP. "" is the zero mesh.
func ParseMesh(s string) (Mesh, error) {
	if s == "" {
		return Mesh{}, nil
	}
	m := Mesh{Data: 1, Model: 1}
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		axis, text, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || seen[axis] || axis != AxisData && axis != AxisModel {
			return Mesh{}, fmt.Errorf("mesh %q: want %s and %s with a number of devices each, like data=4,model=2", s, AxisData, AxisModel)
		}
		seen[axis] = true
		if axis == AxisData {
			m.Data = n
		} else {
			m.Model = n
		}
	}
	m.FSDP = m.Data > 1
	return m, nil
}

// CheckMesh refuses a mesh that a backend does not support, without opening the backend.
func CheckMesh(backend string, m Mesh) error {
	if family, _, _ := strings.Cut(backend, ":"); m.Several() && family != familyXLA {
		return fmt.Errorf("mesh %v: the backend %s drives one device; want an XLA backend, such as xla:cuda", m, cmp.Or(backend, DefaultName))
	}
	return nil
}

// String is like "data 4 x model 2, fsdp".
func (m Mesh) String() string {
	s := fmt.Sprintf("data %d x model %d", m.Data, m.Model)
	if m.FSDP {
		s += ", fsdp"
	}
	return s
}

// Device returns GoMLX's mesh: consecutive devices share a data replica.
func (m Mesh) Device() (*distributed.DeviceMesh, error) {
	if m.Data < 1 || m.Model < 1 {
		return nil, fmt.Errorf("mesh: data %d, model %d: want at least 1 of each", m.Data, m.Model)
	}
	return distributed.NewDeviceMesh([]int{m.Data, m.Model}, []string{AxisData, AxisModel})
}

// Sharding is the division of one tensor over a mesh.
type Sharding struct {
	Name string
	// Axes names the mesh axis of each tensor axis; "" keeps it whole.
	Axes []string
	// Shape of the whole tensor, and of the piece on one device.
	Shape, Shard []int
}

// Spec returns GoMLX's form.
func (s Sharding) Spec(mesh *distributed.DeviceMesh) (*distributed.ShardingSpec, error) {
	b := distributed.BuildSpec(mesh)
	for _, axis := range s.Axes {
		if axis == "" {
			b = b.R()
		} else {
			b = b.S(axis)
		}
	}
	spec, err := b.Done()
	if err != nil {
		return nil, fmt.Errorf("sharding of %s: %w", s.Name, err)
	}
	return spec, nil
}

// anyAxis lets the partitioner divide a tensor axis. Only Constrain accepts it.
const anyAxis = "?"

// Gathered returns the sharding of a weight that is gathered over the data axis.
func (s Sharding) Gathered() Sharding {
	s.Axes, s.Shard = slices.Clone(s.Axes), slices.Clone(s.Shard)
	for i, axis := range s.Axes {
		if axis == AxisData {
			s.Axes[i], s.Shard[i] = "", s.Shape[i]
		}
	}
	return s
}

// TokenSharding returns the sharding of values of each token of a batch: the first axis over
// the data axis. The partitioner divides the others to suit the products around them.
func TokenSharding(rank int) Sharding {
	s := Sharding{Name: "tokens", Axes: slices.Repeat([]string{anyAxis}, rank)}
	s.Axes[0] = AxisData
	return s
}

// Shardings returns the sharding of each weight, in the order of cfg.Tensors. Gradients and
// moments have the shardings of their weights. The error names every dimension that is not a
// multiple of its mesh axis.
func Shardings(cfg model.Config, m Mesh) ([]Sharding, error) {
	if err := m.check(cfg); err != nil {
		return nil, err
	}
	specs := cfg.Tensors()
	out := make([]Sharding, len(specs))
	for i, t := range specs {
		out[i] = m.sharding(t)
	}
	return out, nil
}

// sharding of one weight. Matrices are stored [out, in].
func (m Mesh) sharding(t model.TensorSpec) Sharding {
	s := Sharding{Name: t.Name, Shape: t.Shape, Shard: slices.Clone(t.Shape), Axes: make([]string, len(t.Shape))}
	if t.Split == model.SplitNone {
		return s // a vector or an adapter is smaller than the message that would gather it
	}
	column, row := 0, 1 // the tensor axis over model, and the one over data
	if t.Split == model.SplitIn {
		column, row = 1, 0
	}
	s.Axes[column] = AxisModel
	s.Shard[column] /= m.Model
	if m.FSDP {
		s.Axes[row] = AxisData
		s.Shard[row] /= m.Data
	}
	return s
}

// Place sets the shardings of a store's variables, before the first graph that uses them. path
// maps the name of a weight to its variable, so weights, first moments and second moments take
// one call each. A missing variable is an error. All specs of a program need the same mesh
// object, which GoMLX compares by its address.
func Place(store *ml.Store, shardings []Sharding, mesh *distributed.DeviceMesh, path func(name string) string) error {
	for _, s := range shardings {
		v := store.GetVariable(path(s.Name))
		if v == nil {
			return fmt.Errorf("place %s: no variable %s in the store", s.Name, path(s.Name))
		}
		spec, err := s.Spec(mesh)
		if err != nil {
			return err
		}
		if err := v.SetShardingSpec(spec); err != nil {
			return fmt.Errorf("place %s: %w", s.Name, err)
		}
	}
	return nil
}

// BatchSharding is the sharding of an input with B rows of T tokens.
func BatchSharding(m Mesh, rows, length int) (Sharding, error) {
	if m.Data < 1 || rows%m.Data != 0 {
		return Sharding{}, fmt.Errorf("batch of %d rows: not a multiple of the data axis %d", rows, m.Data)
	}
	return Sharding{Name: "batch", Axes: []string{AxisData, ""}, Shape: []int{rows, length}, Shard: []int{rows / m.Data, length}}, nil
}

// RowSharding returns the sharding of an input whose axis of rows is the one before the last:
// [B, T], or [3, B, T] of packed rows.
func RowSharding(m Mesh, dims []int) (Sharding, error) {
	n := len(dims)
	s, err := BatchSharding(m, dims[n-2], dims[n-1])
	if err != nil {
		return Sharding{}, err
	}
	whole := Everywhere(dims[:n-2])
	return Sharding{Name: s.Name, Axes: append(whole.Axes, s.Axes...), Shape: dims, Shard: append(whole.Shard, s.Shard...)}, nil
}

// Everywhere returns the sharding of a value that every device holds completely.
func Everywhere(dims []int) Sharding {
	return Sharding{Name: "whole", Axes: make([]string, len(dims)), Shape: dims, Shard: slices.Clone(dims)}
}

// check reports every dimension of the model that is not a multiple of its mesh axis.
func (m Mesh) check(cfg model.Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if m.Data < 1 || m.Model < 1 {
		return fmt.Errorf("mesh: data %d, model %d: want at least 1 of each", m.Data, m.Model)
	}
	var errs []error
	divides := func(key string, value int, axis string, size int) {
		if value%size != 0 {
			errs = append(errs, fmt.Errorf("%s: %d is not a multiple of the %s axis %d", key, value, axis, size))
		}
	}
	divides("num_key_value_heads", cfg.NumKeyValueHeads, AxisModel, m.Model)
	divides("num_attention_heads", cfg.NumAttentionHeads, AxisModel, m.Model)
	divides("intermediate_size", cfg.IntermediateSize, AxisModel, m.Model)
	divides("vocab_size", cfg.VocabSize, AxisModel, m.Model)
	if m.FSDP {
		divides("hidden_size", cfg.HiddenSize, AxisData, m.Data)
	}
	return errors.Join(errs...)
}
