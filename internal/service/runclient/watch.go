package runclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"temper/internal/blob"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
)

// keptLog is how many lines of what happened a watch shows at most.
const keptLog = 200

// isTerminal reports whether a picture can be drawn anew.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// Watch draws a run on a terminal whenever it leaves something in the store, until it or ctx
// ends. An output that is no terminal gets a line for each thing that happens.
func Watch(ctx context.Context, r *history.Run, out io.Writer) error {
	return (&watching{run: r, out: out, draw: isTerminal(out)}).until(ctx)
}

// watching shows one run.
type watching struct {
	run     *history.Run
	out     io.Writer
	draw    bool
	records []run.StepRecord
	log     []string
	silent  bool
	ended   bool
	undrawn bool // something is news to the picture
}

// until shows the run until it or ctx ends. A store that does not answer is waited for.
func (w *watching) until(ctx context.Context) error {
	if err := w.drawFrame(ctx); err != nil && !errors.Is(err, blob.ErrUnavailable) {
		return err
	}
	for entries, err := range history.Follow(w.run.Store(), w.run.ID()).Entries(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case errors.Is(err, blob.ErrUnavailable):
			if !w.silent {
				w.addLine("waiting for the store: " + err.Error())
			}
			w.silent = true
			continue
		case err != nil:
			return err
		}
		w.silent = false
		ended, err := w.show(ctx, entries)
		if ended || err != nil {
			return err
		}
	}
	return nil
}

// show takes what is new.
func (w *watching) show(ctx context.Context, entries []history.Entry) (ended bool, err error) {
	for _, e := range entries {
		switch {
		case e.Step != nil:
			w.records = append(w.records, *e.Step)
			if !w.draw {
				w.addLine(export.StepLine(*e.Step, export.ETA(w.records)))
			}
		case e.Event != nil:
			w.addLine(e.Event.Kind + ": " + e.Event.Plain())
			switch e.Event.Kind {
			case run.EventFail, run.EventCancel: // they leave no summary
				w.ended = true
			case run.EventTakeOver:
				w.ended = false
			}
		case e.Evaluation != nil:
			v := e.Evaluation
			w.addLine(fmt.Sprintf("eval: stage %d %s, policy %d: accuracy %.2f", v.Stage, v.Label, v.PolicyVersion, v.Accuracy))
		case e.Summary != nil:
			w.ended = true
			w.addLine("the run has ended")
		}
	}
	w.undrawn = w.undrawn || len(entries) > 0
	if w.undrawn {
		err = w.drawFrame(ctx)
		if errors.Is(err, blob.ErrUnavailable) { // the next look draws it
			return false, nil
		}
		w.undrawn = false
	}
	return w.ended, err
}

// drawFrame draws the picture anew, on a terminal.
func (w *watching) drawFrame(ctx context.Context) error {
	if !w.draw {
		return nil
	}
	entry, err := w.run.Entry(ctx)
	if err != nil {
		return err
	}
	const redraw = "\x1b[H\x1b[2J"
	frame := export.Frame{Entry: entry, Records: w.records, Log: w.log, Now: time.Now()}
	_, err = fmt.Fprint(w.out, redraw+strings.Join(frame.Lines(size("COLUMNS", 80), size("LINES", 24)-1), "\n")+"\n")
	return err
}

// addLine adds a line to the picture, or prints it.
func (w *watching) addLine(line string) {
	if w.log = append(w.log, line); len(w.log) > keptLog {
		w.log = w.log[1:]
	}
	if !w.draw {
		fmt.Fprintln(w.out, export.Visible(line))
	}
}

// size is a number of the environment within reason.
func size(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 10 || n > 1000 {
		return otherwise
	}
	return n
}
