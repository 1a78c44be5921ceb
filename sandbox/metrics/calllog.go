package metrics

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"temper/sandbox"
)

// linesPerSecond bounds the log of calls: a node answers thousands of calls a second.
const linesPerSecond = 50

// callLog writes a line for the first calls of each second.
type callLog struct {
	logger  *slog.Logger
	second  atomic.Int64
	written atomic.Int64 // lines written in the current second
	skipped atomic.Int64 // calls skipped since the last line
}

// write logs the end of a call. It cuts the names that the caller chose, since they may
// hold anything.
func (l *callLog) write(ctx context.Context, req *sandbox.Request, res *sandbox.Result, status string, total time.Duration) {
	if !l.logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	now := time.Now().Unix()
	if l.second.Swap(now) != now {
		l.written.Store(0)
	}
	if l.written.Add(1) > linesPerSecond {
		l.skipped.Add(1)
		return
	}
	l.logger.LogAttrs(ctx, slog.LevelDebug, "call answered",
		slog.String("id", cut(req.ID)), slog.String("run", cut(req.Run)), slog.String("status", status),
		slog.Float64("total_ms", ms(total)), slog.Float64("queue_ms", ms(res.Usage.Queue)),
		slog.Float64("wall_ms", ms(res.Usage.Wall)), slog.Int("exit_code", res.ExitCode),
		slog.Int64("skipped", l.skipped.Swap(0)))
}

// maxName bounds a name of the caller in a log line or a label.
const maxName = 64

func cut(name string) string {
	if len(name) > maxName {
		return name[:maxName]
	}
	return name
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
