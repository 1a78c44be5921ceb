package rows

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// node writes one field of a row as JSON. The values of its columns say by their levels
// where lists begin and what is null, as in Dremel (Melnik et al., 2010).
type node struct {
	// key is the name as JSON text.
	key string
	// first is the first column below, and columns are all of them.
	first, columns int
	// def is the definition level from which the node is there; rep is the repetition level
	// of a further element of a repeated node.
	def, rep           int
	optional, repeated bool
	fields             []*node // nil for a leaf
	// list and dict are the wrappers of Parquet's LIST and MAP.
	list, dict bool
	// scale is the number of digits behind the point of a decimal.
	scale int
	// binary is a column of texts.
	binary bool
}

// maxFields bounds the columns of a file, and maxDepth their nesting.
const (
	maxFields = 4096
	maxDepth  = 32
)

func newNode(c *parquet.Column) (*node, error) { return newNodeAt(c, 0) }

func newNodeAt(c *parquet.Column, depth int) (*node, error) {
	key, err := jsontext.AppendQuote(nil, c.Name())
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", c.Name(), err)
	}
	n := &node{
		key: string(key), optional: c.Optional(), repeated: c.Repeated(),
		def: c.MaxDefinitionLevel(), rep: c.MaxRepetitionLevel(),
	}
	if c.Leaf() {
		n.first, n.columns = c.Index(), 1
		return n, n.leaf(c.Type())
	}
	if depth == maxDepth || len(c.Columns()) > maxFields {
		return nil, errors.New("too many columns within each other")
	}
	for _, inner := range c.Columns() {
		f, err := newNodeAt(inner, depth+1)
		if err != nil {
			return nil, err
		}
		if len(n.fields) == 0 {
			n.first = f.first
		}
		n.columns += f.columns
		n.fields = append(n.fields, f)
	}
	if len(n.fields) == 0 {
		return nil, errors.New("a group without columns")
	}
	n.findWrapper(c)
	return n, nil
}

// findWrapper recognizes a list or a map by its form, which all writers share.
func (n *node) findWrapper(c *parquet.Column) {
	inner := n.fields[0]
	if n.repeated || len(n.fields) != 1 || !inner.repeated {
		return
	}
	switch name := c.Columns()[0].Name(); {
	case len(inner.fields) == 1 && (name == "list" || name == "bag" || name == "array"):
		n.list = true
	case len(inner.fields) == 2 && (name == "key_value" || name == "map") && inner.fields[0].key == `"key"`:
		n.dict = true
	}
}

func (n *node) leaf(t parquet.Type) error {
	switch t.Kind() {
	case parquet.Int96:
		return errors.New("has the old type INT96, which is no text and no number")
	case parquet.ByteArray, parquet.FixedLenByteArray:
		n.binary = true
	default: // numbers and truths
	}
	logical := t.LogicalType()
	if logical == nil {
		return nil
	}
	if d, ok := logical.Value.(*format.DecimalType); ok {
		if n.binary {
			return errors.New("is a decimal in bytes, which is not read")
		}
		n.scale = int(d.Scale)
	}
	return nil
}

// append writes the value and takes it off the columns.
func (n *node) append(out []byte, cells [][]parquet.Value) ([]byte, error) {
	if n.first+n.columns > len(cells) {
		return out, errors.New("has no value")
	}
	if n.repeated {
		return n.appendRepeated(out, cells)
	}
	if n.optional && levelOf(cells[n.first]) < n.def {
		n.pass(cells)
		return append(out, "null"...), nil
	}
	return n.appendDefined(out, cells)
}

// levelOf is the definition level of the next value of a column.
func levelOf(column []parquet.Value) int {
	if len(column) == 0 {
		return -1
	}
	return column[0].DefinitionLevel()
}

// pass takes one value off each column: they stand for the node that is not there.
func (n *node) pass(cells [][]parquet.Value) {
	for i := n.first; i < n.first+n.columns; i++ {
		if len(cells[i]) > 0 {
			cells[i] = cells[i][1:]
		}
	}
}

func (n *node) appendRepeated(out []byte, cells [][]parquet.Value) ([]byte, error) {
	return n.items(out, cells, '[', ']', n.appendDefined)
}

// items writes the repetitions of a node.
func (n *node) items(out []byte, cells [][]parquet.Value, open, end byte, item func([]byte, [][]parquet.Value) ([]byte, error)) ([]byte, error) {
	out = append(out, open)
	if levelOf(cells[n.first]) < n.def {
		n.pass(cells)
		return append(out, end), nil
	}
	for first := true; ; first = false {
		if !first {
			if column := cells[n.first]; len(column) == 0 || column[0].RepetitionLevel() != n.rep {
				return append(out, end), nil
			}
			out = append(out, ',')
		}
		var err error
		if out, err = item(out, cells); err != nil {
			return out, err
		}
	}
}

func (n *node) appendDefined(out []byte, cells [][]parquet.Value) ([]byte, error) {
	switch {
	case n.fields == nil:
		column := cells[n.first]
		if len(column) == 0 {
			return out, errors.New("has no value")
		}
		cells[n.first] = column[1:]
		return n.appendLeaf(out, column[0])
	case n.list:
		inner := n.fields[0]
		return inner.items(out, cells, '[', ']', inner.fields[0].append)
	case n.dict:
		inner := n.fields[0]
		return inner.items(out, cells, '{', '}', inner.appendPair)
	}
	out = append(out, '{')
	for i, f := range n.fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, f.key...), ':')
		var err error
		if out, err = f.append(out, cells); err != nil {
			return out, err
		}
	}
	return append(out, '}'), nil
}

// appendPair writes a key and its value, of a map.
func (n *node) appendPair(out []byte, cells [][]parquet.Value) ([]byte, error) {
	start := len(out)
	out, err := n.fields[0].append(out, cells)
	if err != nil {
		return out, err
	}
	if key := string(out[start:]); !strings.HasPrefix(key, `"`) {
		out = strconv.AppendQuote(out[:start], key) // a number or a truth
	}
	return n.fields[1].append(append(out, ':'), cells)
}

func (n *node) appendLeaf(out []byte, v parquet.Value) ([]byte, error) {
	switch v.Kind() {
	case parquet.Boolean:
		return strconv.AppendBool(out, v.Boolean()), nil
	case parquet.Int32:
		return n.appendInt(out, int64(v.Int32())), nil
	case parquet.Int64:
		return n.appendInt(out, v.Int64()), nil
	case parquet.Float:
		return appendFloat(out, float64(v.Float()), 32), nil
	case parquet.Double:
		return appendFloat(out, v.Double(), 64), nil
	case parquet.ByteArray, parquet.FixedLenByteArray:
		text := v.ByteArray()
		if len(text) > MaxBytes {
			return out, ErrLong
		}
		if !utf8.Valid(text) {
			return out, ErrNotUTF8
		}
		return jsontext.AppendQuote(out, text)
	default:
		return append(out, "null"...), nil
	}
}

// ErrNotUTF8 is a text of a Parquet file in another encoding.
var ErrNotUTF8 = errors.New("is not UTF-8")

// appendInt writes a whole number, or a decimal with its point.
func (n *node) appendInt(out []byte, v int64) []byte {
	if n.scale <= 0 {
		return strconv.AppendInt(out, v, 10)
	}
	sign, digits := "", strconv.FormatInt(v, 10)
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	if short := n.scale + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	cut := len(digits) - n.scale
	return append(out, sign+digits[:cut]+"."+digits[cut:]...)
}

// appendFloat writes a number; JSON has none for infinity and not-a-number.
func appendFloat(out []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(out, "null"...)
	}
	return strconv.AppendFloat(out, v, 'g', -1, bits)
}
