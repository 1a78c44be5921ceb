//go:build xla

package graphcache

/*
#include <stdlib.h>
#include <string.h>

// Arguments of PJRT's functions, as its C interface lays them out. Fields are only ever
// added at their ends.
typedef struct {
	size_t struct_size; void *extension;
	void *code; size_t code_size;
	const char *format; size_t format_size;
} pjrt_program;

typedef struct {
	size_t struct_size; void *extension;
	void *client; const pjrt_program *program;
	const void *options; size_t options_size;
	void *executable; // out
} pjrt_compile;

typedef struct { size_t struct_size; void *extension; void *loaded; void *executable; } pjrt_get_executable;
typedef struct { size_t struct_size; void *extension; void *object; } pjrt_one; // of functions that destroy

typedef struct {
	size_t struct_size; void *extension;
	const void *executable;
	const void *bytes; size_t bytes_size; // out
	void *owner;                          // out, of the bytes
	void (*free_owner)(void *);           // out
} pjrt_serialize;

typedef struct {
	size_t struct_size; void *extension;
	void *client; const void *bytes; size_t bytes_size;
	void *loaded; // out
	const void *options; size_t options_size;
} pjrt_load;

typedef struct { size_t struct_size; void *extension; const void *error; const char *message; size_t message_size; } pjrt_message;

extern void *temperTakeProgram(int slot, void *args);

// One function for each plugin that may be attached: the arguments do not identify the
// plugin.
static void *take0(void *a) { return temperTakeProgram(0, a); }
static void *take1(void *a) { return temperTakeProgram(1, a); }
static void *take2(void *a) { return temperTakeProgram(2, a); }
static void *take3(void *a) { return temperTakeProgram(3, a); }

static void *table_with(void *table, size_t compile, int slot) {
	void *takes[] = {take0, take1, take2, take3};
	size_t size = *(size_t *)table;
	char *out = malloc(size);
	if (out == NULL) return NULL;
	memcpy(out, table, size);
	*(void **)(out + compile) = takes[slot];
	return out;
}

static void *function_at(void *table, size_t offset) { return *(void **)((char *)table + offset); }
static size_t size_of_table(void *table) { return *(size_t *)table; }
static void *call(void *function, void *args) { return ((void *(*)(void *))function)(args); }
static void call_void(void *function, void *args) { ((void (*)(void *))function)(args); }
static void free_owner(pjrt_serialize *a) { if (a->free_owner != NULL) a->free_owner(a->owner); }
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// numSlots is the most plugins of a process.
const numSlots = 4

// functions are the functions of a plugin that this package calls.
type functions struct {
	compile, load, serialize, executableOf, destroyExecutable, message, destroyError unsafe.Pointer
}

// attached is a plugin whose programs go through this package.
type attached struct {
	functions
	cache  *compileCache
	mu     sync.Mutex
	device map[unsafe.Pointer]string // by client
}

// slots are the plugins of the process; go-xla loads each once and keeps it.
var slots struct { //nolint:gochecknoglobals // see above
	sync.Mutex
	of [numSlots]*attached
	n  int
}

// Attached is a plugin whose programs go through this package.
type Attached struct{ in *attached }

// Attach returns a table of functions to use in place of the plugin's.
func (p Plugin) Attach() (Attached, unsafe.Pointer, error) {
	slots.Lock()
	defer slots.Unlock()
	if slots.n == numSlots {
		return Attached{}, nil, fmt.Errorf("%d plugins are attached already", numSlots)
	}
	f, compile, err := p.functions()
	if err != nil {
		return Attached{}, nil, err
	}
	table := C.table_with(p.Table, C.size_t(compile), C.int(slots.n))
	if table == nil {
		return Attached{}, nil, errors.New("no memory for a table of functions")
	}
	a := &attached{functions: f, cache: newCompileCache(p.Library), device: map[unsafe.Pointer]string{}}
	slots.of[slots.n] = a
	slots.n++
	return Attached{a}, table, nil
}

// Client records the device of a client, before its first program. Programs of unrecorded
// clients share their keys whatever the device.
func (a Attached) Client(client unsafe.Pointer, device string) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.in.device[client] = device
}

// Bits returns the line of package function Bits for a device of this plugin.
func (a Attached) Bits(device string) (string, error) {
	hash, err := a.in.cache.library()
	if err != nil {
		return "", err
	}
	return bitsOf(hash, device), nil
}

// functions reads the table of the plugin.
func (p Plugin) functions() (f functions, compile uintptr, err error) {
	for _, x := range []struct {
		name string
		at   *unsafe.Pointer
	}{
		{"PJRT_Client_Compile", &f.compile},
		{"PJRT_Executable_DeserializeAndLoad", &f.load},
		{"PJRT_Executable_Serialize", &f.serialize},
		{"PJRT_LoadedExecutable_GetExecutable", &f.executableOf},
		{"PJRT_Executable_Destroy", &f.destroyExecutable},
		{"PJRT_Error_Message", &f.message},
		{"PJRT_Error_Destroy", &f.destroyError},
	} {
		offset, err := p.Offset(x.name)
		if err != nil {
			return functions{}, 0, err
		}
		if offset+unsafe.Sizeof(offset) <= uintptr(C.size_of_table(p.Table)) {
			*x.at = C.function_at(p.Table, C.size_t(offset))
		}
		keeps := x.at == &f.load || x.at == &f.serialize // optional functions
		if *x.at == nil && !keeps {
			return functions{}, 0, fmt.Errorf("the plugin has no function %s", x.name)
		}
		if x.at == &f.compile {
			compile = offset
		}
	}
	return f, compile, nil
}

// takeProgram answers PJRT_Client_Compile.
func takeProgram(slot int, arguments unsafe.Pointer) unsafe.Pointer {
	args := (*C.pjrt_compile)(arguments)
	a := slots.of[slot] // written before the plugin's table
	a.mu.Lock()
	device := a.device[args.client]
	a.mu.Unlock()
	s := source{
		format: C.GoStringN(args.program.format, C.int(args.program.format_size)),
		code:   unsafe.Slice((*byte)(args.program.code), args.program.code_size), //nolint:gosec // memory of the caller, for this call
		device: device,
	}
	if args.options_size > 0 {
		s.options = unsafe.Slice((*byte)(args.options), args.options_size)
	}
	handle, failure := a.cache.take(s, &call{in: a, args: args})
	if failure == nil {
		args.executable = handle
	}
	return failure
}

// call is a compilation requested by go-xla.
type call struct {
	in   *attached
	args *C.pjrt_compile
}

var _ compiler = (*call)(nil)

func (c *call) compile() (handle, failure unsafe.Pointer) {
	if failure := C.call(c.in.functions.compile, unsafe.Pointer(c.args)); failure != nil {
		return nil, failure
	}
	return c.args.executable, nil
}

// errNoSerialisation means that a plugin lacks the functions to store programs.
var errNoSerialisation = errors.New("the plugin has no functions to serialise programs")

func (c *call) load(program []byte) (unsafe.Pointer, error) {
	if c.in.functions.load == nil {
		return nil, errNoSerialisation
	}
	bytes := C.CBytes(program)
	defer C.free(bytes)
	args := C.pjrt_load{client: c.args.client, bytes: bytes, bytes_size: C.size_t(len(program))}
	args.struct_size = C.size_t(unsafe.Sizeof(args))
	if err := c.in.fail(C.call(c.in.functions.load, unsafe.Pointer(&args))); err != nil {
		return nil, err
	}
	return args.loaded, nil
}

func (c *call) serialize(handle unsafe.Pointer) ([]byte, error) {
	if c.in.functions.serialize == nil {
		return nil, errNoSerialisation
	}
	get := C.pjrt_get_executable{loaded: handle}
	get.struct_size = C.size_t(unsafe.Sizeof(get))
	if err := c.in.fail(C.call(c.in.executableOf, unsafe.Pointer(&get))); err != nil {
		return nil, err
	}
	defer func() {
		destroy := C.pjrt_one{object: get.executable}
		destroy.struct_size = C.size_t(unsafe.Sizeof(destroy))
		_ = c.in.fail(C.call(c.in.destroyExecutable, unsafe.Pointer(&destroy))) // nothing depends on it
	}()
	args := C.pjrt_serialize{executable: get.executable}
	args.struct_size = C.size_t(unsafe.Sizeof(args))
	if err := c.in.fail(C.call(c.in.functions.serialize, unsafe.Pointer(&args))); err != nil {
		return nil, fmt.Errorf("the plugin cannot serialise a program: %w", err)
	}
	defer C.free_owner(&args)
	return append([]byte(nil), unsafe.Slice((*byte)(args.bytes), args.bytes_size)...), nil
}

// fail converts an error of the plugin to a Go error, and destroys it.
func (a *attached) fail(failure unsafe.Pointer) error {
	if failure == nil {
		return nil
	}
	text := C.pjrt_message{error: failure}
	text.struct_size = C.size_t(unsafe.Sizeof(text))
	C.call_void(a.message, unsafe.Pointer(&text))
	err := errors.New(C.GoStringN(text.message, C.int(text.message_size)))
	destroy := C.pjrt_one{object: failure}
	destroy.struct_size = C.size_t(unsafe.Sizeof(destroy))
	C.call_void(a.destroyError, unsafe.Pointer(&destroy))
	return err
}
