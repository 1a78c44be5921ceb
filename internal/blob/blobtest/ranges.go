package blobtest

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
)

// rangesOf are ranges of the ten bytes 0123456789 and what they hold.
var rangesOf = []struct {
	offset, length int64
	want           string
}{
	{0, 10, "0123456789"}, {0, -1, "0123456789"}, {3, 4, "3456"}, {3, -1, "3456789"}, {9, 1, "9"},
	{8, 5, "89"}, {0, 0, ""}, {4, 0, ""}, {10, 3, ""}, {10, -1, ""}, {99, 1, ""},
}

func getRange(t *testing.T, s blob.Store) {
	put(t, s, "a/ten", "0123456789")
	put(t, s, "empty", "")
	read := func(key string, offset, length int64) (string, error) {
		r, err := s.GetRange(t.Context(), key, offset, length)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(r)
		return string(data), errors.Join(err, r.Close())
	}
	for _, tt := range rangesOf {
		if got, err := read("a/ten", tt.offset, tt.length); got != tt.want || err != nil {
			t.Errorf("GetRange(%d, %d) gave %q, error %v; want %q", tt.offset, tt.length, got, err, tt.want)
		}
	}
	for _, length := range []int64{-1, 0, 5} {
		if got, err := read("empty", 0, length); got != "" || err != nil {
			t.Errorf("GetRange(0, %d) of an empty blob gave %q, error %v", length, got, err)
		}
		for _, key := range []string{"none", "a", "a/ten/none"} {
			if _, err := read(key, 0, length); !errors.Is(err, blob.ErrNotExist) {
				t.Errorf("GetRange(0, %d) of %q gave %v, want ErrNotExist", length, key, err)
			}
		}
		if _, err := read("/abs", 0, length); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("GetRange of a bad key gave %v, want a complaint about the key", err)
		}
		if _, err := read("a/ten", -1, length); err == nil || errors.Is(err, blob.ErrNotExist) {
			t.Errorf("GetRange from -1 gave %v, want a complaint about the offset", err)
		}
	}
}

func listFolder(t *testing.T, s blob.Store) {
	// '-' and '.' sort before '/'.
	for _, key := range []string{"top", "a/2", "a/1", "a/b/x", "a/b/c/y", "a/b-d", "a/b.json", "ab/z"} {
		put(t, s, key, key)
	}
	for folder, want := range map[string]struct{ Keys, Folders []string }{
		"":      {[]string{"top"}, []string{"a", "ab"}},
		"a":     {[]string{"a/1", "a/2", "a/b-d", "a/b.json"}, []string{"b"}},
		"a/b":   {[]string{"a/b/x"}, []string{"c"}},
		"none":  {},
		"top":   {},
		"a/b/x": {},
	} {
		infos, folders, err := s.ListFolder(t.Context(), folder)
		got := struct{ Keys, Folders []string }{Folders: folders}
		for _, info := range infos {
			got.Keys = append(got.Keys, info.Key)
			if info.Size != int64(len(info.Key)) || info.ModTime.IsZero() {
				t.Errorf("ListFolder(%q) gave %+v", folder, info)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ListFolder(%q), error %v, want (-) got (+):\n%s", folder, err, diff)
		}
	}
	for _, folder := range []string{"/", "a/", "../x"} {
		if _, _, err := s.ListFolder(t.Context(), folder); err == nil {
			t.Errorf("ListFolder(%q) was accepted", folder)
		}
	}
}
