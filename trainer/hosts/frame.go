package hosts

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
)

// A frame is a head of headSize bytes, a message as JSON, and the values of its tensors.
// The head holds the lengths of both and a checksum over them.
const (
	headSize   = 16
	maxMessage = 1 << 20
	chunkSize  = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame means that a peer does not follow the protocol.
var errFrame = errors.New("a message does not follow the protocol")

// part describes a tensor of a frame.
type part struct {
	Type dtypes.DType `json:"type"`
	Dims []int        `json:"dims,omitempty"`
}

// blob is the content of a tensor to send: a tensor of a device, or plain values, which
// several goroutines may send at the same time.
type blob struct {
	part
	tensor *tensors.Tensor
	data   []byte
}

func blobOf(t *tensors.Tensor) blob {
	return blob{part: part{t.DType(), t.Shape().Dimensions}, tensor: t}
}

// blobOfFloats shares the memory of the values.
func blobOfFloats(shape []int, values []float32) blob {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	return blob{part: part{dtypes.Float32, shape}, data: data}
}

// size returns the number of bytes.
func (b blob) size() int {
	if b.tensor != nil {
		return int(b.tensor.ByteSize())
	}
	return len(b.data)
}

// read calls do with the bytes.
func (b blob) read(do func([]byte) error) error {
	if b.tensor == nil {
		return do(b.data)
	}
	var failed error
	if err := b.tensor.ConstBytes(func(data []byte) { failed = do(data) }); err != nil {
		return err
	}
	return failed
}

// conn sends and receives frames. A peer that makes no progress for longer than patience
// is lost.
type conn struct {
	net.Conn
	patience time.Duration
	sending  sync.Mutex
	limit    atomic.Int64 // most bytes of tensors in a frame
	sent     atomic.Int64
	received atomic.Int64
	moved    atomic.Int64 // time of the last transfer of tensor bytes, in nanoseconds since 1970
}

// bulk reads and writes the bytes of tensors, and records their time.
type bulk struct{ *conn }

// Read implements io.Reader.
func (b bulk) Read(p []byte) (int, error) {
	n, err := b.conn.Read(p)
	b.moved.Store(time.Now().UnixNano())
	return n, err
}

// Write implements io.Writer. It records the time of each chunk.
func (b bulk) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = b.conn.Write(p[n:min(len(p), n+chunkSize)])
		n += m
		b.moved.Store(time.Now().UnixNano())
	}
	return n, err
}

// quietSince returns the later of t and the last transfer of tensor bytes.
func (c *conn) quietSince(t time.Time) time.Time {
	if moved := time.Unix(0, c.moved.Load()); moved.After(t) {
		return moved
	}
	return t
}

// Read implements io.Reader.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p[:min(len(p), chunkSize)])
	c.received.Add(int64(n))
	return n, err
}

// Write implements io.Writer.
func (c *conn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
			break
		}
		var m int
		m, err = c.Conn.Write(p[n:min(len(p), n+chunkSize)])
		n += m
	}
	c.sent.Add(int64(n))
	return n, err
}

// send writes a message with tensors. Several goroutines may send.
func (c *conn) send(m message, body []blob) error {
	m.Parts = make([]part, len(body))
	size := 0
	for i, b := range body {
		m.Parts[i] = b.part
		size += b.size()
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind, err)
	}
	if len(text) > maxMessage {
		return fmt.Errorf("message %s: %d bytes, at most %d", m.Kind, len(text), maxMessage)
	}
	sum := crc32.Checksum(text, castagnoli)
	for _, b := range body {
		if err := b.read(func(data []byte) error { sum = crc32.Update(sum, castagnoli, data); return nil }); err != nil {
			return err
		}
	}
	head := make([]byte, headSize, headSize+len(text))
	binary.LittleEndian.PutUint32(head, uint32(len(text)))
	binary.LittleEndian.PutUint64(head[4:], uint64(size))
	binary.LittleEndian.PutUint32(head[12:], sum)
	c.sending.Lock()
	defer c.sending.Unlock()
	if _, err := c.Write(append(head, text...)); err != nil {
		return err
	}
	for _, b := range body {
		if err := b.read(func(data []byte) error { _, err := bulk{c}.Write(data); return err }); err != nil {
			return err
		}
	}
	return nil
}

// receive reads a message with its tensors.
func (c *conn) receive() (message, []*tensors.Tensor, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return message{}, nil, err
	}
	length, size := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint64(head[4:])
	if length > maxMessage || size > uint64(c.limit.Load()) {
		return message{}, nil, fmt.Errorf("%w: a frame of %d and %d bytes, at most %d and %d", errFrame, length, size, maxMessage, c.limit.Load())
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(c, text); err != nil {
		return message{}, nil, err
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return message{}, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	body, err := newTensors(m.Parts, size)
	if err != nil {
		return message{}, nil, err
	}
	sum := crc32.Checksum(text, castagnoli)
	for _, t := range body {
		if err := fill(t, func(data []byte) error {
			_, err := io.ReadFull(bulk{c}, data)
			sum = crc32.Update(sum, castagnoli, data)
			return err
		}); err != nil {
			return message{}, nil, err
		}
	}
	if sum != binary.LittleEndian.Uint32(head[12:]) {
		return message{}, nil, fmt.Errorf("%w: checksum of %s is wrong", errFrame, m.Kind)
	}
	return m, body, nil
}

// newTensors allocates the tensors of a frame whose bytes add up to size.
func newTensors(parts []part, size uint64) ([]*tensors.Tensor, error) {
	total := uint64(0)
	for _, p := range parts {
		n := uint64(1)
		for _, d := range p.Dims {
			if d < 1 || uint64(d) > size/n { // the product may not overflow
				return nil, fmt.Errorf("%w: a tensor of %v in %d bytes", errFrame, p.Dims, size)
			}
			n *= uint64(d)
		}
		if p.Type != dtypes.Float32 && p.Type != dtypes.Int32 && p.Type != dtypes.Bool {
			return nil, fmt.Errorf("%w: a tensor of type %v", errFrame, p.Type)
		}
		total += n * uint64(p.Type.Size())
	}
	if total != size {
		return nil, fmt.Errorf("%w: tensors of %d bytes in %d", errFrame, total, size)
	}
	out := make([]*tensors.Tensor, len(parts))
	for i, p := range parts {
		out[i] = tensors.FromShape(shapes.Make(p.Type, p.Dims...))
	}
	return out, nil
}

// fill calls do with the bytes of a tensor, for writing.
func fill(t *tensors.Tensor, do func([]byte) error) error {
	var failed error
	if err := t.MutableBytes(func(data []byte) { failed = do(data) }); err != nil {
		return err
	}
	return failed
}
