package export

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"temper/internal/fault"
	"temper/internal/history"
	"temper/internal/run"
)

// WandB writes a run as W&B writes one while it is offline: a folder with a transaction
// log, which wandb sync sends to a server. It returns the folder and the number of steps.
func WandB(ctx context.Context, r *history.Run, dir, project string) (folder string, steps int, err error) {
	records, err := r.Records(ctx)
	if err != nil {
		return "", 0, err
	}
	if len(records) == 0 {
		return "", 0, fault.Newf(fault.InvalidConfig, "run %s has no step to export yet", r.ID())
	}
	cfg, err := r.Config(ctx)
	if err != nil {
		return "", 0, err
	}
	started := records[0].Started.UTC()
	folder = filepath.Join(dir, fmt.Sprintf("offline-run-%s-%s", started.Format("20060102_150405"), r.ID()))
	// wandb sync writes the summary into files before it sends it.
	if err := os.MkdirAll(filepath.Join(folder, "files"), 0o755); err != nil { //nolint:gosec // the user reads it
		return "", 0, err
	}
	log := filepath.Join(folder, "run-"+r.ID()+".wandb")
	// wandb sync passes over what has this mark of an earlier sync.
	if err := os.Remove(log + ".synced"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", 0, err
	}
	file, err := os.Create(log) //nolint:gosec // the user names the folder
	if err != nil {
		return "", 0, err
	}
	w := bufio.NewWriter(file)
	out := newWandBLog(w)
	about := wandbAbout{id: r.ID(), project: project, started: started}
	if err = about.write(out, cfg.Newest()); err == nil {
		err = out.steps(records)
	}
	if err == nil {
		err = w.Flush()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return folder, len(records), err
}

// Fields of the records of wandb/proto/wandb_internal.proto.
const (
	recordNum     = 1
	recordHistory = 2
	recordSummary = 3
	recordRun     = 17
	recordExit    = 18
	recordHeader  = 21

	itemKey   = 1
	itemValue = 16
)

// wandbAbout holds the fields of the record of a run.
type wandbAbout struct {
	id, project string
	started     time.Time
}

// write writes the header and the record of the run with its configuration.
func (a wandbAbout) write(log *wandbLog, cfg any) error {
	version := message(nil, 1, text(text(nil, 1, "0.19.0"), 2, "0.13.0")) // of the writer, and the oldest reader
	if err := log.record(recordHeader, version); err != nil {
		return err
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return err
	}
	var config []byte
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		config = message(config, 1, item(key, string(keys[key])))
	}
	out := text(text(nil, 1, a.id), 3, a.project)
	out = message(out, 4, config)
	out = text(out, 8, a.id) // the name that people see: runs of one configuration share that of the configuration
	at := number(number(nil, 1, a.started.Unix()), 2, int64(a.started.Nanosecond()))
	return log.record(recordRun, message(out, 17, at))
}

// steps writes the history, the summary and the end of the run.
func (l *wandbLog) steps(records []run.StepRecord) error {
	started := records[0].Started
	for _, r := range records {
		items := values(r)
		items["_step"] = float64(r.Step)
		items["_timestamp"] = float64(r.Ended.UnixNano()) / 1e9
		items["_runtime"] = r.Ended.Sub(started).Seconds()
		if err := l.record(recordHistory, message(itemsOf(items), 2, number(nil, 1, int64(r.Step)))); err != nil {
			return err
		}
	}
	last := records[len(records)-1]
	summary := values(last)
	summary["_step"] = float64(last.Step)
	if err := l.record(recordSummary, itemsOf(summary)); err != nil {
		return err
	}
	return l.record(recordExit, number(nil, 2, int64(last.Ended.Sub(started).Seconds())))
}

// values are the finite numbers of a step.
func values(r run.StepRecord) map[string]float64 {
	out := make(map[string]float64, len(r.Metrics))
	for name, x := range r.Metrics.Known() {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			out[name] = x
		}
	}
	return out
}

// itemsOf are numbers as repeated items of field 1, ordered by name.
func itemsOf(numbers map[string]float64) []byte {
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		value, err := json.Marshal(numbers[name])
		if err == nil { // finite numbers always encode
			out = message(out, 1, item(name, string(value)))
		}
	}
	return out
}

func item(key, value string) []byte { return text(text(nil, itemKey, key), itemValue, value) }

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte, field protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), inner)
}

func number(b []byte, field protowire.Number, x int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(x)) //nolint:gosec // as protobuf wants it
}

// wandbLog frames records as the log of LevelDB does: blocks of 32 KiB, in each of which
// pieces of records stand behind a sum, a length and a kind.
type wandbLog struct {
	w    io.Writer
	num  int64
	used int // of the block
}

const (
	wandbBlock = 32 << 10
	wandbHead  = 7 // bytes before each piece, and at the begin of the file
)

// Kinds of pieces.
const (
	pieceWhole = iota + 1
	pieceFirst
	pieceMiddle
	pieceLast
)

func newWandBLog(w io.Writer) *wandbLog { return &wandbLog{w: w} }

// record writes one record of a kind.
func (l *wandbLog) record(kind protowire.Number, inner []byte) error {
	l.num++
	data := message(number(nil, recordNum, l.num), kind, inner)
	if l.num == 1 {
		if err := l.put(append([]byte(":W&B"), 0xe1, 0xbe, 0)); err != nil { // a magic number and the version 0
			return err
		}
	}
	for first := true; ; first = false {
		if left := wandbBlock - l.used; left < wandbHead {
			if err := l.put(make([]byte, left)); err != nil {
				return err
			}
		}
		n := min(len(data), wandbBlock-l.used-wandbHead)
		piece := byte(pieceMiddle)
		switch last := n == len(data); {
		case first && last:
			piece = pieceWhole
		case first:
			piece = pieceFirst
		case last:
			piece = pieceLast
		}
		sum := crc32.ChecksumIEEE(append([]byte{piece}, data[:n]...))
		head := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(nil, sum), uint16(n)) //nolint:gosec // at most a block
		if err := l.put(append(append(head, piece), data[:n]...)); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

func (l *wandbLog) put(data []byte) error {
	l.used = (l.used + len(data)) % wandbBlock
	_, err := l.w.Write(data)
	return err
}
