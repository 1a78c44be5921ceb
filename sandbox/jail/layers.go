package jail

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is the kind of privilege that the jail was built with.
type Mode string

// Modes, from the strongest to the weakest.
const (
	ModeRoot  Mode = "root"  // privileged: a separate uid for each call
	ModeUser  Mode = "user"  // ordinary user inside a user namespace
	ModePlain Mode = "plain" // no namespaces at all
)

// Layer is one defence and whether it holds on this machine.
type Layer struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	Reason string `json:"reason,omitempty"` // why it is off
}

// State is one word for a layer that is on, and the reason for one that is off.
func (l Layer) State() string {
	if l.On {
		return "on"
	}
	return "off: " + l.Reason
}

// Report lists the layers between a program and the machine.
type Report struct {
	Mode    Mode     `json:"mode"`
	Python  string   `json:"python"`  // path of the interpreter
	Version string   `json:"version"` // of the interpreter, as in 3.11.7
	Layers  []Layer  `json:"layers"`
	Heavy   []string `json:"heavy,omitempty"`   // modules that a second, heavier zygote holds
	Missing []string `json:"missing,omitempty"` // modules that could not be preloaded
	// LeftOut lists the folders on the interpreter's path that lie outside its
	// installation: programs neither see them nor can import from them.
	LeftOut []string `json:"left_out,omitempty"`
	// NumShown counts the dot files among packages that are too many to be hidden.
	NumShown int `json:"dot_files_shown,omitempty"`
}

// Off returns the layers that do not hold.
func (r Report) Off() []Layer {
	var off []Layer
	for _, l := range r.Layers {
		if !l.On {
			off = append(off, l)
		}
	}
	return off
}

// Hidden returns lines that name the parts of the interpreter's path that programs do not
// see, and the dot files that they do see.
func (r Report) Hidden() []string {
	var lines []string
	for _, path := range r.LeftOut {
		lines = append(lines, path+" is on the path of "+r.Python+" but not part of its installation: programs do not see it; install what they need from it without -e (pip install "+path+")")
	}
	if r.NumShown > 0 {
		lines = append(lines, fmt.Sprintf("%d dot files among the packages of %s are too many to hide: remove them, or use an environment of its own for programs", r.NumShown, r.Python))
	}
	return lines
}

// RequireAll in Config.Require stands for every layer.
const RequireAll = "all"

// require returns an error that names each required layer that is off or unknown.
func (r Report) require(names []string) error {
	var lacking []string
	for _, l := range r.Layers {
		if !l.On && (slices.Contains(names, RequireAll) || slices.Contains(names, l.Name)) {
			lacking = append(lacking, l.Name+" ("+l.Reason+")")
		}
	}
	for _, name := range names {
		known := slices.ContainsFunc(r.Layers, func(l Layer) bool { return l.Name == name })
		if !known && name != RequireAll {
			lacking = append(lacking, name+" (no such layer)")
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("required sandbox layers are off: %s", strings.Join(lacking, ", "))
	}
	return nil
}
