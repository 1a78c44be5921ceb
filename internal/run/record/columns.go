package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Columns are the columns of an index, for readers that need no rows. The values of each
// are a list in JSON.
type Columns struct {
	Num    int // rows
	Values map[string]json.RawMessage
}

// ReadColumns reads the columns of an index, also those that Row does not have. It
// decodes no value.
func ReadColumns(data []byte) (Columns, error) {
	out := Columns{Num: -1, Values: map[string]json.RawMessage{}}
	err := eachColumn(data, func(name string, values json.RawMessage) error {
		n := countValues(values)
		if out.Num >= 0 && n != out.Num {
			return fmt.Errorf("%w: column %q has %d values, want %d", errIndex, name, n, out.Num)
		}
		out.Num, out.Values[name] = n, values
		return nil
	})
	out.Num = max(out.Num, 0)
	return out, err
}

// eachColumn passes the columns of an index one after another.
func eachColumn(data []byte, take func(name string, values json.RawMessage) error) error {
	data, ok := bytes.CutPrefix(data, []byte(indexMagic))
	if !ok {
		return fmt.Errorf("index: want a first line %q", indexMagic)
	}
	dec, err := newDecoder()
	if err != nil {
		return err
	}
	defer dec.Close()
	for len(data) > 0 {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return errIndex
		}
		text, err := dec.DecodeAll(data[n:][:size], nil)
		if err != nil {
			return fmt.Errorf("%w: %w", errIndex, err)
		}
		data = data[n+int(size):] //nolint:gosec // within the data
		var c struct {
			Name   string          `json:"name"`
			Values json.RawMessage `json:"values"`
		}
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("%w: %w", errIndex, err)
		}
		if len(c.Values) < 2 || c.Values[0] != '[' {
			return fmt.Errorf("%w: column %q has no list of values", errIndex, c.Name)
		}
		if err := take(c.Name, c.Values); err != nil {
			return err
		}
	}
	return nil
}

// countValues counts the values of a JSON list that holds no lists or objects, as the
// writer makes it.
func countValues(list []byte) int {
	if len(bytes.TrimSpace(list[1:len(list)-1])) == 0 {
		return 0
	}
	n, quoted := 1, false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n
}

// Numbers are the values of a column of numbers, NaN for none; ok is false where the
// column is not recorded or holds something else.
func (c Columns) Numbers(name string) (out []float64, ok bool) {
	list, ok := c.Values[name]
	if !ok {
		return nil, false
	}
	out = make([]float64, 0, c.Num)
	for len(out) < c.Num {
		list = list[1:] // the bracket or a comma
		end := bytes.IndexAny(list, ",]")
		if end < 0 {
			return nil, false
		}
		x := math.NaN()
		if text := bytes.TrimSpace(list[:end]); string(text) != "null" {
			var err error
			if x, err = strconv.ParseFloat(string(text), 64); err != nil {
				return nil, false
			}
		}
		out, list = append(out, x), list[end:]
	}
	return out, true
}

// Words are the values of a column of texts: each text once, and for each row the place
// of its text. ok is false where the column is not recorded or holds something else.
func (c Columns) Words(name string) (words []string, at []int, ok bool) {
	var texts []string
	if list, found := c.Values[name]; !found || json.Unmarshal(list, &texts) != nil {
		return nil, nil, false
	}
	place := map[string]int{}
	words, at = []string{}, make([]int, len(texts))
	for i, text := range texts {
		p, known := place[text]
		if !known {
			p = len(words)
			place[text], words = p, append(words, text)
		}
		at[i] = p
	}
	return words, at, true
}

// fillColumn sets a field of all rows.
func fillColumn(rows []Row, field column, values json.RawMessage) error {
	switch field.at(&Row{}).(type) {
	case *string:
		return fill(rows, field, values, func(to any, v string) { *to.(*string) = v }) //nolint:forcetypeassert // checked above
	case *int:
		return fill(rows, field, values, func(to any, v int) { *to.(*int) = v }) //nolint:forcetypeassert // checked above
	case *float64:
		return fill(rows, field, values, func(to any, v float64) { *to.(*float64) = v }) //nolint:forcetypeassert // checked above
	case **float64:
		return fill(rows, field, values, func(to any, v *float64) { *to.(**float64) = v }) //nolint:forcetypeassert // checked above
	}
	var each []json.RawMessage
	if err := json.Unmarshal(values, &each); err != nil {
		return err
	}
	if len(each) != len(rows) {
		return fmt.Errorf("%d values for %d rows", len(each), len(rows))
	}
	for i := range rows {
		if err := json.Unmarshal(each[i], field.at(&rows[i])); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

// fill decodes all values of a type at once: one at a time takes ten times as long.
func fill[T any](rows []Row, field column, values json.RawMessage, set func(to any, v T)) error {
	list := make([]T, 0, len(rows))
	if err := json.Unmarshal(values, &list); err != nil {
		return err
	}
	if len(list) != len(rows) {
		return fmt.Errorf("%d values for %d rows", len(list), len(rows))
	}
	for i := range rows {
		set(field.at(&rows[i]), list[i])
	}
	return nil
}
