// Package query answers SQL over what runs leave in a store. The tables are read through
// internal/history when a query asks for them; SQLite joins, sorts and sums in memory. It
// stores nothing.
//
// Invariant: a query reads what its tables show and nothing else, changes nothing, and ends
// within its limits.
package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
	"modernc.org/sqlite/vtab"

	"temper/internal/blob"
	"temper/internal/fault"
)

// Limits bound one query.
type Limits struct {
	// Time is how long it may take, with what it reads of the store.
	Time time.Duration
	// Rows and Bytes bound its answer; what is beyond them is left out.
	Rows  int
	Bytes int
	// Memory bounds what SQLite holds for all queries of the process.
	Memory int64
}

// DefaultLimits are those of a query of somebody who waits.
func DefaultLimits() Limits {
	return Limits{Time: 5 * time.Second, Rows: 10_000, Bytes: 32 << 20, Memory: 256 << 20}
}

// Result is the answer to a query. A cell is nil, a string, an int64 or a finite float64; what is
// infinite is the text "+Inf" or "-Inf", for which JSON has no number.
type Result struct {
	// Columns are the names of the columns, each once: the second reward is reward_2.
	Columns []string
	Rows    [][]any
	// Truncated says that the answer had more rows than the limits allow.
	Truncated bool
}

// Run answers one SELECT. Errors: InvalidConfig for what is no such statement, is wrong,
// or meets a limit, each in one line.
func Run(ctx context.Context, store blob.Store, text string, limits Limits) (Result, error) {
	if err := checkStatement(text); err != nil {
		return Result{}, fault.New(fault.InvalidConfig, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Time)
	defer cancel()
	s := &source{ctx: ctx, store: store}
	out, err := answer(ctx, s, text, limits)
	switch {
	case s.err != nil && ctx.Err() == nil: // of the store: SQLite knows its text alone
		return Result{}, s.err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Result{}, fault.Newf(fault.InvalidConfig, "the query was stopped after %s: narrow it down by run and step, or ask with more time", limits.Time)
	case ctx.Err() != nil:
		return Result{}, ctx.Err()
	case err != nil:
		return Result{}, fault.Newf(fault.InvalidConfig, "%s", explain(err, limits))
	}
	return out, nil
}

// checkStatement refuses what is no single question. SQLite itself is held to reading, too.
func checkStatement(text string) error {
	const most = 64 << 10
	if len(text) > most {
		return fmt.Errorf("the query has %d bytes, at most %d are taken", len(text), most)
	}
	if strings.ContainsRune(text, 0) {
		return errors.New("the query has a NUL byte")
	}
	if rest := skip(behindFirst(text)); rest != "" {
		return fmt.Errorf("more follows the first statement, from %.20q on: ask one question at a time", rest)
	}
	word := strings.ToUpper(firstWord(text))
	switch word {
	case "SELECT", "WITH", "VALUES", "EXPLAIN":
		return nil
	case "":
		return errors.New("the query is empty: want a SELECT")
	default:
		return fmt.Errorf("the query begins with %.20q: want SELECT, WITH, VALUES or EXPLAIN", word)
	}
}

// behindFirst is what stands behind the first statement: behind a semicolon outside of quotes and comments.
func behindFirst(text string) string {
	ends := []struct{ begin, end string }{{"--", "\n"}, {"/*", "*/"}, {"'", "'"}, {`"`, `"`}, {"`", "`"}, {"[", "]"}}
	for text != "" {
		if text[0] == ';' {
			return text[1:]
		}
		rest := text[1:]
		for _, e := range ends {
			if inside, ok := strings.CutPrefix(text, e.begin); ok {
				_, rest, _ = strings.Cut(inside, e.end) // "" where it never ends
				break
			}
		}
		text = rest
	}
	return ""
}

// firstWord is the first word behind comments and space.
func firstWord(text string) string {
	text = skip(text)
	end := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(text)
	}
	return text[:end]
}

// skip is what follows comments and space.
func skip(text string) string {
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		switch {
		case strings.HasPrefix(text, "--"):
			_, text, _ = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text, "*/")
		default:
			return text
		}
	}
}

// explain makes one line of what SQLite says.
func explain(err error, limits Limits) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "SQL logic error: ")
	if strings.Contains(text, "out of memory") || strings.Contains(text, "(7)") {
		return fmt.Sprintf("the query needs more than %d MiB: narrow it down by run and step, or ask for fewer columns", limits.Memory>>20)
	}
	return "SQL: " + text
}

// registered makes SQLite know the tables, once for the process: its modules are global.
var registered = sync.OnceValues(func() (*module, error) {
	if err := countMemory(); err != nil {
		return nil, err
	}
	m := &module{sources: map[string]*source{}}
	return m, vtab.RegisterModule(nil, moduleName, m)
})

// countMemory makes SQLite count what it holds, without which its limit of memory has no
// effect. It must come before the first database.
func countMemory() error {
	tls := libc.NewTLS()
	defer tls.Close()
	const size = 16
	args := tls.Alloc(size)
	defer tls.Free(size)
	if code := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, libc.VaList(args, int32(1))); code != sqlite3.SQLITE_OK {
		return fmt.Errorf("SQLite does not count its memory: code %d", code)
	}
	return nil
}

const moduleName = "temper_table"

// answer runs a query on a database in memory that has the tables alone.
func answer(ctx context.Context, s *source, text string, limits Limits) (Result, error) {
	m, err := registered()
	if err != nil {
		return Result{}, err
	}
	id := m.add(s)
	defer m.remove(id)
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return Result{}, err
	}
	defer db.Close() //nolint:errcheck // it is in memory
	conn, err := db.Conn(ctx)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close() //nolint:errcheck // it is in memory
	if err := prepare(ctx, conn, id, limits); err != nil {
		return Result{}, err
	}
	stop, err := interruptAt(ctx, conn)
	if err != nil {
		return Result{}, err
	}
	defer stop()
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return Result{}, err
	}
	defer rows.Close() //nolint:errcheck // read alone
	return collect(rows, limits)
}

// interruptAt ends a query with ctx. The driver does so up to the first row alone, and then waits for the next
// one, however long that takes. stop waits until the connection is not used any more.
func interruptAt(ctx context.Context, conn *sql.Conn) (stop func(), err error) {
	var db uintptr
	err = conn.Raw(func(c any) error {
		field := reflect.Indirect(reflect.ValueOf(c)).FieldByName("db") // the driver's handle of SQLite
		if field.Kind() != reflect.Uintptr || field.Uint() == 0 {
			return errors.New("this version of the driver has no handle of SQLite where it is looked for")
		}
		db = uintptr(field.Uint())
		return nil
	})
	if err != nil {
		return nil, err
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			tls := libc.NewTLS()
			defer tls.Close()
			sqlite3.Xsqlite3_interrupt(tls, db)
		case <-done:
		}
	}()
	return func() { close(done); <-ended }, nil
}

// prepare makes the tables and then takes from the connection whatever could write, read a
// file, or grow without bound.
func prepare(ctx context.Context, conn *sql.Conn, id string, limits Limits) error {
	if _, err := conn.ExecContext(ctx, "PRAGMA temp_store = 2"); err != nil { // in memory
		return err
	}
	for _, t := range tables() {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("CREATE VIRTUAL TABLE %s USING %s(%s, %s)", t.name, moduleName, id, t.name)); err != nil {
			return err
		}
	}
	for _, pragma := range []string{
		"PRAGMA query_only = 1", "PRAGMA trusted_schema = 0",
		fmt.Sprintf("PRAGMA hard_heap_limit = %d", limits.Memory),
	} {
		if _, err := conn.ExecContext(ctx, pragma); err != nil {
			return err
		}
	}
	for id, most := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: limits.Bytes, sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
	} {
		if _, err := sqlite.Limit(conn, id, most); err != nil {
			return err
		}
	}
	return nil
}

// collect reads the answer up to the limits.
func collect(rows *sql.Rows, limits Limits) (Result, error) {
	var out Result
	var err error
	if out.Columns, err = rows.Columns(); err != nil {
		return out, err
	}
	distinguish(out.Columns)
	size := 0
	for rows.Next() {
		if len(out.Rows) >= limits.Rows || size > limits.Bytes {
			out.Truncated = true
			return out, nil
		}
		row, to := make([]any, len(out.Columns)), make([]any, len(out.Columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return out, err
		}
		for i := range row {
			row[i] = cell(row[i])
			if text, ok := row[i].(string); ok {
				size += len(text)
			}
			size += 16
		}
		out.Rows = append(out.Rows, row)
	}
	return out, rows.Err()
}

// distinguish makes names differ: rows as objects of JSON would lose a value.
func distinguish(names []string) {
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = true
	}
	seen := map[string]bool{}
	for i, name := range names {
		for n := 2; seen[names[i]]; n++ {
			if next := fmt.Sprintf("%s_%d", name, n); !taken[next] {
				names[i], taken[next] = next, true
			}
		}
		seen[names[i]] = true
	}
}

// cell makes a value of the answer one of the few kinds that a Result has.
func cell(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case float64:
		if math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return v
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	default:
		return v
	}
}

// source is what the tables of one query are made of.
type source struct {
	ctx   context.Context //nolint:containedctx // SQLite asks for rows without one
	store blob.Store
	err   error // of the store, the first
}

// fail keeps the error for the caller of the query.
func (s *source) fail(err error) error {
	if s.err == nil && s.ctx.Err() == nil {
		s.err = err
	}
	return err
}

// module is what SQLite knows the tables by. The first argument of a table names the
// source of its query.
type module struct {
	next    atomic.Int64
	mu      sync.Mutex
	sources map[string]*source
}

func (m *module) add(s *source) string {
	id := fmt.Sprintf("q%d", m.next.Add(1))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources[id] = s
	return id
}

func (m *module) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sources, id)
}

// Create implements vtab.Module.
func (m *module) Create(ctx vtab.Context, args []string) (vtab.Table, error) {
	return m.Connect(ctx, args)
}

// Connect implements vtab.Module.
func (m *module) Connect(ctx vtab.Context, args []string) (vtab.Table, error) {
	if len(args) < 5 {
		return nil, errors.New("a table needs a source and a name")
	}
	m.mu.Lock()
	s := m.sources[strings.TrimSpace(args[3])]
	m.mu.Unlock()
	name := strings.TrimSpace(args[4])
	for _, t := range tables() {
		if t.name == name && s != nil {
			return &view{source: s, table: t}, ctx.Declare(t.declaration())
		}
	}
	return nil, fmt.Errorf("no table %s", name)
}
