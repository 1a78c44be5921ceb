package ui

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"temper/internal/history"
	"temper/internal/run/record"
)

// FindStep counts the rows of one step that match a filter.
type FindStep struct {
	Step  int `json:"step"`
	Found int `json:"found"`
	Rows  int `json:"rows"`
}

// FoundRow is one trajectory that matches a filter.
type FoundRow struct {
	Step int `json:"step"`
	record.Row
}

// FindView holds the matches of a filter in all steps of a run.
type FindView struct {
	// Found counts the trajectories that match, of Rows in all.
	Found int        `json:"found"`
	Rows  int        `json:"rows"`
	Steps []FindStep `json:"steps"`
	// First holds matches of the newest steps, at most findRows, and only those that could be
	// read in time: a repeated request has more.
	First []FoundRow `json:"first"`
	// Unread counts the steps whose index is not read yet: repeat the request.
	Unread int `json:"unread"`
	// Missing counts the steps without an index.
	Missing int `json:"missing"`
	// Columns holds the columns that a filter can name.
	Columns []string `json:"columns"`
}

const (
	// findRows bounds the rows of an answer.
	findRows = 200
	// findTime bounds how long one request reads indexes; the next one continues.
	findTime = 1500 * time.Millisecond
	// rowsTime bounds how long it reads indexes again for the rows that it lists.
	rowsTime = 400 * time.Millisecond
	// findReaders bounds the indexes that are read at once.
	findReaders = 4
	// tableBytes bounds the cache of tables: a row takes 22 bytes, or 30 with entropies, and a
	// run of the paper's size 244 MiB.
	tableBytes = 256 << 20
	// maxTerms bounds the terms of a filter.
	maxTerms = 20
)

// findNumbers and findWords name the columns of filters.
var (
	findNumbers = []string{"reward", "advantage", "p_err", "p_format", "turns", "calls", "failed_calls", "response_tokens", "answer_tags", "mean_logprob", "mean_entropy"}
	findWords   = []string{"fate", "stop_reason"}
)

// term is one condition of a filter.
type term struct {
	column string
	sign   string
	number float64
	word   string
}

var termForm = regexp.MustCompile(`^([a-z_]+)(<=|>=|!=|=|<|>|:)(.+)$`)

// parseFilter reads a filter such as "reward=1 failed_calls>2 fate=dropped". All its
// terms must hold. Errors: a problem for the client.
func parseFilter(text string) ([]term, error) {
	var out []term
	for _, word := range strings.Fields(text) {
		m := termForm.FindStringSubmatch(word)
		if m == nil {
			return nil, problem{http.StatusBadRequest, fmt.Sprintf("%s in the filter: want a column, one of < <= = != >= > and a value, such as failed_calls>2", brief(word))}
		}
		t := term{column: m[1], sign: strings.Replace(m[2], ":", "=", 1), word: m[3]}
		switch {
		case slices.Contains(findWords, t.column):
			if t.sign != "=" && t.sign != "!=" {
				return nil, problem{http.StatusBadRequest, fmt.Sprintf("%s in the filter: %s is a word, want = or !=", brief(word), t.column)}
			}
		case slices.Contains(findNumbers, t.column):
			var err error
			if t.number, err = strconv.ParseFloat(t.word, 64); err != nil || math.IsNaN(t.number) {
				return nil, problem{http.StatusBadRequest, fmt.Sprintf("%s in the filter: want a number after %s", brief(word), t.sign)}
			}
		default:
			return nil, problem{http.StatusBadRequest, fmt.Sprintf("%s in the filter: no such column, want one of %s", brief(word), strings.Join(slices.Concat(findNumbers, findWords), ", "))}
		}
		if out = append(out, t); len(out) > maxTerms {
			return nil, problem{http.StatusBadRequest, fmt.Sprintf("the filter has more than %d terms", maxTerms)}
		}
	}
	return out, nil
}

// holds reports whether x satisfies the term. NaN, a value not recorded, never does.
func (t term) holds(x float64) bool {
	switch t.sign {
	case "<":
		return x < t.number
	case "<=":
		return x <= t.number
	case ">":
		return x > t.number
	case ">=":
		return x >= t.number
	case "!=":
		return x != t.number && !math.IsNaN(x)
	default:
		return x == t.number
	}
}

// packedColumn is a compact column: a byte a row for at most 256 different values, a float32
// a row where that is exact, and a float64 a row otherwise.
type packedColumn struct {
	values []float64 // by code
	words  []string  // by code, of a column of words
	codes  []uint8
	short  []float32
	long   []float64
}

func packNumbers(list []float64) *packedColumn {
	p := &packedColumn{codes: make([]uint8, len(list))}
	place := map[uint64]uint8{}
	for i, x := range list {
		code, ok := place[math.Float64bits(x)]
		if !ok {
			if len(p.values) == 256 {
				return packMany(list)
			}
			code = uint8(len(p.values)) //nolint:gosec // below 256
			place[math.Float64bits(x)], p.values = code, append(p.values, x)
		}
		p.codes[i] = code
	}
	return p
}

// packMany packs a column with more than 256 different values.
func packMany(list []float64) *packedColumn {
	short := make([]float32, len(list))
	for i, x := range list {
		short[i] = float32(x)
		if float64(short[i]) != x && !math.IsNaN(x) {
			return &packedColumn{long: list}
		}
	}
	return &packedColumn{short: short}
}

// keep clears the marks of rows that do not satisfy a term.
func (p *packedColumn) keep(t term, marks []bool) {
	for i, x := range p.short {
		marks[i] = marks[i] && t.holds(float64(x))
	}
	for i, x := range p.long {
		marks[i] = marks[i] && t.holds(x)
	}
	if p.codes == nil {
		return
	}
	var holds [256]bool
	for code, x := range p.values {
		holds[code] = t.holds(x)
	}
	for code, word := range p.words {
		holds[code] = (word == t.word) == (t.sign == "=")
	}
	for i, code := range p.codes {
		marks[i] = marks[i] && holds[code]
	}
}

// table holds the columns of a step that filters read; a missing column is not recorded.
type table struct {
	rows    int
	columns map[string]*packedColumn
	// groups holds the first row of each problem; the rows of a problem are contiguous.
	groups []packedGroup
	size   int
}

// packedGroup is a problem, by the hash of its id, and its first row.
type packedGroup struct {
	problem uint64
	first   int32
}

func tableOf(c record.Columns) *table {
	t := &table{rows: c.Num, columns: map[string]*packedColumn{}}
	for _, name := range findNumbers {
		if list, ok := c.Numbers(name); ok {
			t.columns[name] = packNumbers(list)
		}
	}
	for _, name := range findWords {
		words, at, ok := c.Words(name)
		if !ok || len(words) > 256 {
			continue
		}
		p := &packedColumn{words: words, codes: make([]uint8, len(at))}
		for i, code := range at {
			p.codes[i] = uint8(code) //nolint:gosec // below 256
		}
		t.columns[name] = p
	}
	if words, at, ok := c.Words("problem"); ok {
		for i, code := range at {
			if i == 0 || code != at[i-1] {
				t.groups = append(t.groups, packedGroup{sumOf(words[code]), int32(i)}) //nolint:gosec // rows of a step
			}
		}
		t.size += 16 * len(t.groups)
	}
	for _, p := range t.columns {
		t.size += len(p.codes) + 4*len(p.short) + 8*len(p.long) + 8*len(p.values) + 200
	}
	return t
}

// match marks the rows that satisfy all terms and returns their number.
func (t *table) match(terms []term, marks []bool) int {
	for i := range marks {
		marks[i] = true
	}
	for _, term := range terms {
		if p := t.columns[term.column]; p != nil {
			p.keep(term, marks)
		} else {
			clear(marks)
		}
	}
	n := 0
	for _, mark := range marks {
		if mark {
			n++
		}
	}
	return n
}

// finder searches the steps of a run: by filters over columns, by problem and by text.
type finder struct {
	reader *runReader
	packed *cache // tables of steps
	// searching holds a value for each search by text.
	searching chan struct{}
}

func (fi *finder) find(r *request) (FindView, error) {
	out := FindView{Steps: []FindStep{}, First: []FoundRow{}, Columns: slices.Concat(findNumbers, findWords)}
	terms, err := parseFilter(r.URL.Query().Get("filter"))
	if err != nil {
		return out, err
	}
	h, err := fi.reader.open(r)
	if err != nil {
		return out, err
	}
	entry, err := h.Entry(r.Context())
	if err != nil {
		return out, err
	}
	tables, err := fi.tables(r.Context(), h, entry.Step)
	if err != nil {
		return out, err
	}
	first := &firstRows{cache: fi.reader.cache, run: h, until: time.Now().Add(rowsTime)}
	var marks []bool
	for step := entry.Step; step >= 1; step-- {
		t := tables[step-1]
		switch {
		case t == nil:
			out.Unread++
			continue
		case t.rows == 0:
			out.Missing++
			continue
		}
		marks = slices.Grow(marks[:0], t.rows)[:t.rows]
		found := t.match(terms, marks)
		out.Found, out.Rows = out.Found+found, out.Rows+t.rows
		out.Steps = append(out.Steps, FindStep{Step: step, Found: found, Rows: t.rows})
		if found > 0 {
			if err := first.add(r.Context(), step, marks); err != nil {
				return out, err
			}
		}
	}
	out.First = append(out.First, first.rows...)
	return out, nil
}

// firstRows collects whole rows of the newest matches. Tables do not hold whole rows, so it
// reads the index again and caches the rows that it finds.
type firstRows struct {
	cache *cache
	run   *history.Run
	until time.Time
	full  bool // no row may follow
	rows  []FoundRow
}

// add collects the marked rows of a step.
func (f *firstRows) add(ctx context.Context, step int, marks []bool) error {
	var index []record.Row
	for i, marked := range marks {
		if !marked || f.full {
			continue
		}
		key := fmt.Sprintf("found/%s/%d/%d", f.run.ID(), step, i)
		row, known := f.cache.get(key)
		if !known && index == nil {
			if f.full = time.Now().After(f.until); f.full {
				break
			}
			var err error
			if index, _, err = history.RolloutsOf(f.run).Index(ctx, step); err != nil { // in the order of the columns
				return err
			}
		}
		if !known && i < len(index) {
			row, known = FoundRow{step, index[i]}, true
			f.cache.put(key, row, rowBytes+maxAnswerBytes)
		}
		if known {
			f.rows = append(f.rows, row.(FoundRow)) //nolint:forcetypeassert // the key is of this type alone
		}
		f.full = len(f.rows) == findRows
	}
	return nil
}

// maxAnswerBytes bounds an answer in the index.
const maxAnswerBytes = 250

// tables returns the tables of the steps from 1 on, reading the newest first; an entry is nil
// where findTime was too short to read it.
func (fi *finder) tables(ctx context.Context, h *history.Run, steps int) ([]*table, error) {
	out := make([]*table, steps)
	var wanted []int
	for step := steps; step >= 1; step-- {
		if known, ok := fi.packed.get(tableKey(h, step)); ok {
			out[step-1] = known.(*table) //nolint:forcetypeassert // the key is of this type alone
		} else {
			wanted = append(wanted, step)
		}
	}
	until := time.Now().Add(findTime)
	var mu sync.Mutex
	var first error
	var readers sync.WaitGroup
	for range min(findReaders, len(wanted)) {
		readers.Go(func() {
			for {
				mu.Lock()
				if len(wanted) == 0 || first != nil || time.Now().After(until) {
					mu.Unlock()
					return
				}
				step := wanted[0]
				wanted = wanted[1:]
				mu.Unlock()
				c, ok, err := history.RolloutsOf(h).Columns(ctx, step)
				t := tableOf(c)
				if ok && err == nil { // else it may lack a column
					fi.packed.put(tableKey(h, step), t, t.size)
				}
				mu.Lock()
				first = cmp.Or(first, err)
				out[step-1] = t
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	return out, first
}

func tableKey(h *history.Run, step int) string { return fmt.Sprintf("table/%s/%d", h.ID(), step) }
