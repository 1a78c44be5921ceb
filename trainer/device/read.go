package device

import (
	"fmt"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/gomlx/gomlx/ml/model"

	"temper/trainer/weights/hostmem"
)

// Read copies a tensor to dst, of the same size. It reads a tensor that is only on a device
// directly: reading it through the tensor would leave a second copy on the host.
func Read(dst []float32, t *tensors.Tensor) error {
	if t.IsLocal() || !t.IsOnAnyDevice() {
		return readLocal(dst, t)
	}
	backend, err := t.Backend()
	if err != nil {
		return err
	}
	if backend.HasSharedBuffers() {
		return readLocal(dst, t)
	}
	device, err := t.Device()
	if err != nil {
		return err
	}
	buffer, err := t.Buffer(backend, device)
	if err != nil {
		return err
	}
	return buffer.ToFlatData(dst)
}

// readLocal copies a tensor that is on the host.
func readLocal(dst []float32, t *tensors.Tensor) error {
	return tensors.ConstFlatData(t, func(flat []float32) { hostmem.Copy(dst, flat) })
}

// ReadVariable copies the value of a variable to dst, of the same size. The pieces on a mesh
// are joined in dst alone.
func ReadVariable(dst []float32, v *model.Variable) error {
	if v.ShardingSpec() == nil {
		value, err := v.Value()
		if err != nil {
			return err
		}
		return Read(dst, value)
	}
	pieces, err := v.DistributedValue()
	if err != nil {
		return err
	}
	return readPieces(dst, pieces)
}

// readPieces joins the pieces of a tensor in dst. Of copies it reads the first.
func readPieces(dst []float32, d *dtensor.Tensor) error {
	whole, part := d.Shape().Dimensions, d.ShardShape().Dimensions
	var buffer []float32
	read := map[int]bool{} // offsets in dst
	for i, shard := range d.Shards() {
		at, err := placeOf(d, i)
		if err != nil {
			return err
		}
		if read[at] {
			continue
		}
		read[at] = true
		if len(dst) == shard.Shape().Size() {
			return Read(dst, shard) // every device has the whole tensor
		}
		if buffer == nil {
			buffer = make([]float32, shard.Shape().Size())
		}
		if err := Read(buffer, shard); err != nil {
			return fmt.Errorf("piece on device %d: %w", i, err)
		}
		copyBlock(dst[at:], buffer, whole, part)
	}
	return nil
}

// placeOf returns the start of a device's piece in the whole tensor.
func placeOf(d *dtensor.Tensor, device int) (int, error) {
	names, sizes := d.Mesh().AxesNames(), d.Mesh().AxesSizes()
	coordinate, size := map[string]int{}, map[string]int{}
	for axis := len(sizes) - 1; axis >= 0; axis-- {
		coordinate[names[axis]], size[names[axis]] = device%sizes[axis], sizes[axis]
		device /= sizes[axis]
	}
	whole, part, axes := d.Shape().Dimensions, d.ShardShape().Dimensions, d.ShardingSpec().Axes
	at := 0
	for axis := range whole {
		start := 0
		if axis < len(axes) {
			for _, name := range axes[axis] {
				if size[name] == 0 {
					return 0, fmt.Errorf("axis %q is not one of the mesh", name)
				}
				start = start*size[name] + coordinate[name]
			}
		}
		at = at*whole[axis] + start*part[axis]
	}
	return at, nil
}

// copyBlock copies a block of the shape part to the beginning of a tensor of the shape
// whole.
func copyBlock(dst, src []float32, whole, part []int) {
	if len(part) <= 1 {
		copy(dst, src)
		return
	}
	to, from := 1, 1
	for axis := 1; axis < len(part); axis++ {
		to, from = to*whole[axis], from*part[axis]
	}
	for i := range part[0] {
		copyBlock(dst[i*to:], src[i*from:(i+1)*from], whole[1:], part[1:])
	}
}
