package jail

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// label names a place in a filter: a final answer, or the checks of a rule.
type label int

// Answers to a system call. A call without a rule gets answerRefuse.
const (
	answerRefuse label = iota // EPERM
	answerAllow
	answerDone   // success, nothing done
	answerAbsent // ENOSYS
	firstRule    // the first of the rules
)

// answers are the return values of the labels below firstRule.
var answers = [firstRule]uint32{
	answerRefuse: seccompErrno | uint32(unix.EPERM),
	answerAllow:  seccompAllow,
	answerDone:   seccompErrno,
	answerAbsent: seccompErrno | uint32(unix.ENOSYS),
}

// searchTree assembles a filter as a balanced search over ranges of call numbers. The
// kernel runs a new filter once for every number, to learn which calls it always allows, so
// installing a filter takes as long as its longest paths; a linear list takes four times as
// long.
type searchTree struct {
	numbers map[uint32]label
	code    []jump
}

// jump is an instruction with unresolved targets.
type jump struct {
	bpf.Instruction
	yes, no target
}

// target is the destination of a conditional jump: a label or an instruction.
type target struct {
	label label
	at    int // an instruction when positive
}

func (s *searchTree) set(number uint32, l label) {
	if s.numbers == nil {
		s.numbers = make(map[uint32]label)
	}
	s.numbers[number] = l
}

// span is a range of numbers with one answer; it ends where the next one starts.
type span struct {
	from  uint32
	label label
}

// spans returns the ranges of the calls, with neighbours of the same answer merged.
func (s *searchTree) spans() []span {
	list := []span{{0, answerRefuse}}
	add := func(from uint32, l label) {
		last := &list[len(list)-1]
		switch {
		case last.from == from:
			last.label = l
			if n := len(list); n > 1 && list[n-2].label == l {
				list = list[:n-1]
			}
		case last.label != l:
			list = append(list, span{from, l})
		}
	}
	for _, number := range slices.Sorted(maps.Keys(s.numbers)) {
		add(number, s.numbers[number])
		add(number+1, answerRefuse)
	}
	add(firstOtherABI, answerAbsent)
	return list
}

// program emits the filter: architecture, tree, rules, answers. Every jump goes forward.
func (s *searchTree) program(arch uint32, rules []rule) ([]bpf.Instruction, error) {
	s.code = nil
	s.emit(bpf.LoadAbsolute{Off: offsetArch, Size: 4})
	s.branch(bpf.JumpEqual, arch, target{at: 2}, target{label: answerRefuse})
	s.emit(bpf.LoadAbsolute{Off: offsetNumber, Size: 4})
	s.search(s.spans())
	places := make(map[label]int)
	for i, r := range rules {
		places[firstRule+label(i)] = len(s.code)
		s.checks(r.checks)
	}
	for l, value := range answers {
		places[label(l)] = len(s.code)
		s.emit(bpf.RetConstant{Val: value})
	}
	if len(s.code) > biggestProgram {
		return nil, fmt.Errorf("%d instructions are above the limit of %d", len(s.code), biggestProgram)
	}
	return s.link(places), nil
}

// search emits the tree over list, which is not empty, and returns where it starts.
func (s *searchTree) search(list []span) target {
	if len(list) == 1 {
		return target{label: list[0].label}
	}
	middle := len(list) / 2
	at := len(s.code)
	s.branch(bpf.JumpGreaterOrEqual, list[middle].from, target{}, target{})
	s.code[at].no = s.search(list[:middle])
	s.code[at].yes = s.search(list[middle:])
	return target{at: at}
}

// checks emits the tests of one rule.
func (s *searchTree) checks(list []check) {
	for i, c := range list {
		s.emit(bpf.LoadAbsolute{Off: argument(c.arg, c.high), Size: 4})
		if c.mask != ^uint32(0) {
			s.emit(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
		}
		next := target{at: len(s.code) + len(c.values)}
		passed, failed := next, target{label: answerRefuse}
		if c.final != 0 {
			passed, failed = target{label: c.final}, next
		}
		if i == len(list)-1 {
			passed = target{label: max(c.final, answerAllow)}
			failed = target{label: answerRefuse}
		}
		if c.unless {
			passed, failed = failed, passed
		}
		for j, value := range c.values {
			other := failed
			if j < len(c.values)-1 {
				other = target{at: len(s.code) + 1}
			}
			s.branch(bpf.JumpEqual, value, passed, other)
		}
	}
}

func (s *searchTree) emit(ins bpf.Instruction) { s.code = append(s.code, jump{Instruction: ins}) }

func (s *searchTree) branch(cond bpf.JumpTest, value uint32, yes, no target) {
	s.code = append(s.code, jump{bpf.JumpIf{Cond: cond, Val: value}, yes, no})
}

// link resolves targets to distances.
func (s *searchTree) link(places map[label]int) []bpf.Instruction {
	program := make([]bpf.Instruction, len(s.code))
	for i, j := range s.code {
		distance := func(t target) uint8 {
			if t.at > 0 {
				return uint8(t.at - i - 1)
			}
			return uint8(places[t.label] - i - 1)
		}
		program[i] = j.Instruction
		if test, ok := j.Instruction.(bpf.JumpIf); ok {
			test.SkipTrue, test.SkipFalse = distance(j.yes), distance(j.no)
			program[i] = test
		}
	}
	return program
}

// argument returns the offset of one half of a system call argument. All architectures with
// a table of calls are little-endian.
func argument(n int, high bool) uint32 {
	off := offsetArgs + uint32(8*n)
	if high {
		off += 4
	}
	return off
}
