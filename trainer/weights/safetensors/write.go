package safetensors

import (
	"fmt"
	"io"
)

// Write writes a whole file: the header, then each tensor by put, in the header's order. put
// must write exactly the tensor's bytes.
func (h *Header) Write(w io.Writer, put func(w io.Writer, t Info) error) error {
	if _, err := w.Write(h.prefix()); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, t := range h.Tensors {
		c := &counter{w: w, left: t.Size()}
		if err := put(c, t); err != nil {
			return fmt.Errorf("write tensor %s: %w", t.Name, err)
		}
		if c.left != 0 {
			return fmt.Errorf("write tensor %s: %d bytes too few for shape %v of %s", t.Name, c.left, t.Shape, t.DType)
		}
	}
	return nil
}

// counter is a writer that accepts the bytes of one tensor and no more.
type counter struct {
	w    io.Writer
	left int64
}

func (c *counter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		return 0, fmt.Errorf("%d bytes too many", int64(len(p))-c.left)
	}
	n, err := c.w.Write(p)
	c.left -= int64(n)
	return n, err
}

// PutFloat32s writes values in the type, in pieces of bounded size.
func PutFloat32s(w io.Writer, d DType, values []float32) error {
	const piece = 64 << 10
	buf := make([]byte, 0, 4*min(piece, len(values)))
	for len(values) > 0 {
		n := min(piece, len(values))
		var err error
		if buf, err = AppendFloat32s(buf[:0], d, values[:n]); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}
