package query

import (
	"fmt"
	"iter"
	"math"
	"strings"

	"modernc.org/sqlite/vtab"
)

// table is a table of the queries.
type table struct {
	name, meaning string
	columns       []Column
	// rows reads what is wanted; more may come, SQLite tests each row itself. A row has a
	// value for each column: nil, string, int64 or float64.
	rows func(s *source, w wanted) iter.Seq2[[]any, error]
}

// Column is a column of a table.
type Column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Meaning string `json:"meaning"`
}

// Table describes a table.
type Table struct {
	Name    string   `json:"name"`
	Meaning string   `json:"meaning"`
	Columns []Column `json:"columns"`
}

// Tables describes all tables.
func Tables() []Table {
	var out []Table
	for _, t := range tables() {
		out = append(out, Table{t.name, t.meaning, t.columns})
	}
	return out
}

// Types of columns.
const (
	text    = "TEXT"
	integer = "INTEGER"
	float   = "REAL"
)

// Columns by which a table reads less.
const (
	runColumn  = "run"
	stepColumn = "step"
)

func (t *table) declaration() string {
	var columns []string
	for _, c := range t.columns {
		columns = append(columns, fmt.Sprintf("%q %s", c.Name, c.Type))
	}
	return fmt.Sprintf("CREATE TABLE x(%s)", strings.Join(columns, ", "))
}

// wanted says which rows a query asks for, as far as that saves reading: of a run, "" for
// all, and of the steps from From to To.
type wanted struct {
	run      string
	from, to int64
}

func (w wanted) hasStep(step int) bool { return int64(step) >= w.from && int64(step) <= w.to }

// view is a table of one query.
type view struct {
	source *source
	table  table
}

// BestIndex implements vtab.Table: it takes what narrows run and step down, and leaves the
// test of each row to SQLite.
func (v *view) BestIndex(info *vtab.IndexInfo) error {
	cost, args := 1e9, 0
	var plan []string
	for i := range info.Constraints {
		c := &info.Constraints[i]
		c.ArgIndex = -1
		if !c.Usable || c.Column < 0 || c.Column >= len(v.table.columns) {
			continue
		}
		name, op := v.table.columns[c.Column].Name, opNames[c.Op]
		if op == "" || name != stepColumn && (name != runColumn || c.Op != vtab.OpEQ) {
			continue
		}
		c.ArgIndex = args
		args++
		plan = append(plan, name+op)
		if c.Op == vtab.OpEQ {
			cost /= 1000
		} else {
			cost /= 2
		}
	}
	info.IdxStr = strings.Join(plan, ",")
	info.EstimatedCost = cost
	return nil
}

var opNames = map[vtab.ConstraintOp]string{vtab.OpEQ: "=", vtab.OpGT: ">", vtab.OpGE: ">=", vtab.OpLT: "<", vtab.OpLE: "<="}

// Open implements vtab.Table.
func (v *view) Open() (vtab.Cursor, error) { return &cursor{view: v}, nil }

// Disconnect implements vtab.Table.
func (v *view) Disconnect() error { return nil }

// Destroy implements vtab.Table.
func (v *view) Destroy() error { return nil }

// cursor walks over the rows of a table.
type cursor struct {
	view *view
	next func() ([]any, error, bool)
	stop func()
	row  []any
	id   int64
}

// Filter implements vtab.Cursor.
func (c *cursor) Filter(_ int, plan string, values []vtab.Value) error {
	w := wanted{from: math.MinInt64, to: math.MaxInt64}
	for i, part := range strings.Split(plan, ",") {
		if part != "" && i < len(values) {
			w.narrow(part, values[i])
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	c.next, c.stop = iter.Pull2(c.view.table.rows(c.view.source, w))
	return c.Next()
}

// narrow takes one comparison. One of another type than the column narrows nothing.
func (w *wanted) narrow(part string, value vtab.Value) {
	if id, ok := value.(string); ok && part == runColumn+"=" {
		w.run = id
		return
	}
	n, ok := value.(int64)
	if !ok {
		return
	}
	switch strings.TrimPrefix(part, stepColumn) {
	case "=":
		w.from, w.to = max(w.from, n), min(w.to, n)
	case ">":
		if n < math.MaxInt64 {
			w.from = max(w.from, n+1)
		}
	case ">=":
		w.from = max(w.from, n)
	case "<":
		if n > math.MinInt64 {
			w.to = min(w.to, n-1)
		}
	case "<=":
		w.to = min(w.to, n)
	}
}

// Next implements vtab.Cursor.
func (c *cursor) Next() error {
	if err := c.view.source.ctx.Err(); err != nil {
		return err
	}
	row, err, more := c.next()
	if !more {
		c.row = nil
		return nil
	}
	if err != nil {
		return c.view.source.fail(err)
	}
	c.row = row
	c.id++
	return nil
}

// Eof implements vtab.Cursor.
func (c *cursor) Eof() bool { return c.row == nil }

// Column implements vtab.Cursor.
func (c *cursor) Column(i int) (vtab.Value, error) {
	if i < 0 || i >= len(c.row) {
		return nil, nil
	}
	return c.row[i], nil
}

// Rowid implements vtab.Cursor.
func (c *cursor) Rowid() (int64, error) { return c.id, nil }

// Close implements vtab.Cursor.
func (c *cursor) Close() error {
	if c.stop != nil {
		c.stop()
		c.next, c.stop, c.row = nil, nil, nil
	}
	return nil
}
