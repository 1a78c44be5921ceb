package chatclient

import (
	"encoding/json"
	"io"
	"strings"

	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// Printer shows a conversation as it comes. It is for one goroutine.
type Printer struct {
	out    io.Writer
	colour bool
	open   bool // the last line has no end
	faint  bool // reasoning is being shown
}

// NewPrinter returns a Printer that writes to out, with colours where that is asked for.
func NewPrinter(out io.Writer, colour bool) *Printer { return &Printer{out: out, colour: colour} }

// Escape sequences of terminals, the only ones that are ever written.
const (
	faint  = "\x1b[2m"
	accent = "\x1b[36m"
	alert  = "\x1b[31m"
	plain  = "\x1b[0m"
)

func (p *Printer) style(code, text string) string {
	if !p.colour || text == "" {
		return text
	}
	return code + text + plain
}

func (p *Printer) write(text, shown string) error {
	if text == "" {
		return nil
	}
	p.open = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(p.out, shown)
	return err
}

// Show writes what is new.
func (p *Printer) Show(d Delta) error {
	if text := Escape(d.Reasoning); text != "" {
		p.faint = true
		if err := p.write(text, p.style(faint, text)); err != nil {
			return err
		}
	}
	if text := Escape(d.Content); text != "" {
		if p.faint {
			p.faint = false
			if err := p.End(); err != nil {
				return err
			}
		}
		if err := p.write(text, text); err != nil {
			return err
		}
	}
	for _, e := range d.Executed {
		if err := p.showCall(e); err != nil {
			return err
		}
	}
	return nil
}

// showCall shows a call that begins, or its result.
func (p *Printer) showCall(e Executed) error {
	if err := p.End(); err != nil {
		return err
	}
	head, body, code := "--- call "+Escape(oneLine(e.Name)), describeArguments(e.Arguments), accent
	if e.Status != "" {
		head, body, code = "--- result: "+Escape(oneLine(string(e.Status))), e.Content, faint
		if e.Status != status.OK {
			code = alert
		}
	}
	if err := p.write("x", p.style(code, head)); err != nil {
		return err
	}
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(Escape(body), "\n")) {
		text.WriteString("\n    " + strings.TrimSuffix(line, "\n"))
	}
	shown := text.String()
	if e.Status != "" {
		shown = p.style(faint, shown)
	}
	return p.write(shown+"\n", shown+"\n")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// describeArguments returns the arguments of a call for a person: the text of a program, or
// JSON.
func describeArguments(arguments string) string {
	program, err := builtin.ProgramOf(arguments)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal([]byte(arguments), &members) != nil {
		return arguments
	}
	text := program.Code
	if program.Input != "" {
		text += "\n<<< " + program.Input
	}
	delete(members, "code")
	delete(members, "input")
	if len(members) > 0 {
		return arguments
	}
	return text
}

// End ends an open line.
func (p *Printer) End() error {
	if !p.open {
		return nil
	}
	p.open = false
	_, err := io.WriteString(p.out, "\n")
	return err
}

// Note writes a line of the program's own.
func (p *Printer) Note(text string) error {
	if err := p.End(); err != nil {
		return err
	}
	_, err := io.WriteString(p.out, p.style(faint, "["+Escape(text)+"]")+"\n")
	return err
}
