# The memory of a zygote as a fork likes it: few mappings, in huge pages.

NEAR = 4 << 20  # mappings with at most such a gap become one


def unite(maps, cfg):
    """Makes one mapping of huge pages of each stretch of neighbouring mappings.

    A fork copies each mapping and each page table, and a child pays a fault for
    each page of a file it comes to. Here the files of the interpreter, their data and
    the heap become private memory, of which a fork copies one entry for 2 MiB. The memory may
    be written and executed alike, which takes nothing away: a program can ask for such memory.
    """
    call = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(map_code(bytes.fromhex(cfg["rebuild"])))
    fill_heap_page()
    keep = cfg["layout"]["window"]
    stretches = regions(listing(maps), (0, 0), keep)
    room = sum(whole(s[-1][1] - s[0][0]) + 2 * HUGE for s in stretches)
    fresh = reserve(room + 8 * HUGE)  # the heap may have grown until they are copied
    if fresh is None:
        return
    steps = ctypes.create_string_buffer(64 * (2 * sum(map(len, stretches)) + 64))
    done = False
    for _ in range(16):
        before = listing(maps)
        words = plan(before, fresh, keep, cfg["nr"])
        if 8 * len(words) > len(steps):
            break
        struct.pack_into("=%dq" % len(words), steps, 0, *words)
        if listing(maps) == before:
            done = call(ctypes.addressof(steps)) == 0
            break
    if not done:  # what has its place already keeps it
        libc.munmap(ctypes.c_void_p(fresh[0]), ctypes.c_size_t(fresh[1] - fresh[0]))


def fill_heap_page():
    """Lets the heap end with a huge page; the C library takes what lies between as used by another."""
    libc.sbrk.restype = ctypes.c_void_p
    end = libc.sbrk(ctypes.c_long(0))
    libc.sbrk(ctypes.c_long(-end % HUGE))


def whole(size):
    """Rounds up to huge pages."""
    return -(-size // HUGE) * HUGE


def reserve(size):
    """Returns the bounds of fresh memory in whole huge pages; None where there is none."""
    try:
        start = map_memory(size + HUGE, 7)
    except OSError:
        return None
    first = whole(start)
    libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(first - start))
    libc.munmap(ctypes.c_void_p(first + size), ctypes.c_size_t(start + HUGE - first))
    advise(first, size, 14)
    return first, first + size


def listing(maps):
    """Returns what the kernel says of the mappings; maps is open since the root was the machine's."""
    fd, at, text = maps.fileno(), 0, b""
    while True:
        part = os.pread(fd, 1 << 16, at)
        if not part:
            return text
        text += part
        at += len(part)


def regions(text, fresh, keep):
    """Returns the stretches to unite, each a list of mappings (start, end)."""
    found = []
    barrier, end = True, 0
    for line in text.decode().splitlines():
        parts = line.split()
        lo, hi = (int(x, 16) for x in parts[0].split("-"))
        path = parts[5] if len(parts) > 5 else ""
        fixed = path[:2] == "[v" or path == "[stack]" or fresh[0] <= lo < fresh[1]
        window = not path and parts[1] == "r--p" and hi - lo >= keep
        if fixed or window or parts[1][0] != "r" or parts[1][3] != "p" and parts[1][1] == "w":
            barrier, end = True, hi
            continue
        if barrier or lo - end > NEAR:
            found.append([])
            if lo // HUGE * HUGE >= end:  # what lies before it in its huge page is free
                found[-1].append((lo // HUGE * HUGE,) * 2)
        barrier, end = False, hi
        found[-1].append((lo, hi))
    return found


def plan(text, fresh, keep, nr):
    """Returns the steps that copy each stretch and put the copy in its place."""
    words = []
    at = fresh[0]
    for stretch in regions(text, fresh, keep):
        lo, hi = stretch[0][0], stretch[-1][1]
        start = at + lo % HUGE  # alike in a huge page
        if start + hi - lo > fresh[1]:
            break
        for first, last in stretch[stretch[0][0] == stretch[0][1] :]:
            words += [-2, 0, start + first - lo, first, last - first, 0, 0, 0]
        words += [nr["mremap"], 0, start, hi - lo, hi - lo, 3, lo, 0]
        at = whole(start + hi - lo)
    words += [nr["munmap"], 0, fresh[0], fresh[1] - fresh[0], 0, 0, 0, 0]
    return words + [-1]


def advise(lo, size, advice):
    return libc.madvise(ctypes.c_void_p(lo), ctypes.c_size_t(size), advice)
