package checkpoint_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/trainer/checkpoint"
)

const firstManifest = "runs/r/ckpt/step-000001/manifest.json"

// rewrite changes the stored manifest of the first step.
func rewrite(t *testing.T, s blob.Store, change func(m map[string]any)) blob.Ref {
	t.Helper()
	var m map[string]any
	if err := blob.ReadJSON(t.Context(), s, firstManifest, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	ref, err := blob.PutJSON(t.Context(), s, firstManifest, m, blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// asFormat2 makes a manifest one of a build before the first release.
func asFormat2(m map[string]any) {
	m["format"] = 2
	delete(m, "crc64nvme")
}

// damage flips a bit of the first shard and returns its key.
func damage(t *testing.T, s blob.Store) string {
	t.Helper()
	key := keys(t, s, "cas/")[0]
	data, err := blob.ReadKey(t.Context(), s, key)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if _, err := blob.PutBytes(t.Context(), s, key, data, blob.Always); err != nil {
		t.Fatal(err)
	}
	return key
}

// TestLoadChecksTheChecksum: the sum of the manifest finds a flipped bit, and one
// that is wrong itself is not passed over.
func TestLoadChecksTheChecksum(t *testing.T) {
	s := memblob.New()
	ref := save(t, s, 1, state(1))
	key := damage(t, s)
	_, _, err := checkpoint.Load(t.Context(), s, ref)
	if !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), key+": crc64nvme ") {
		t.Errorf("a flipped bit: error %v", err)
	}
	damage(t, s) // flips it back
	if _, _, err := checkpoint.Load(t.Context(), s, ref); err != nil {
		t.Fatal(err)
	}
	for what, sum := range map[string]string{"of other bytes": "AAAAAAAAAAA=", "of no sum": "AAAA"} {
		ref := rewrite(t, s, func(m map[string]any) {
			sums := m["crc64nvme"].(map[string]any)
			for sha := range sums {
				sums[sha] = sum
			}
		})
		if _, _, err := checkpoint.Load(t.Context(), s, ref); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("a sum %s: error %v", what, err)
		}
	}
	ref = rewrite(t, s, func(m map[string]any) { delete(m, "crc64nvme") })
	if _, _, err := checkpoint.Load(t.Context(), s, ref); !errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("format 3 without sums: error %v", err)
	}
}

// TestEarlierFormatIsRefused by name, with the way out.
func TestEarlierFormatIsRefused(t *testing.T) {
	s := memblob.New()
	save(t, s, 1, state(1))
	ref := rewrite(t, s, asFormat2)
	_, _, err := checkpoint.Load(t.Context(), s, ref)
	if !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), "format 2 of a build before v0.1.0") {
		t.Errorf("error %v", err)
	}
}

// TestVerifyFindsAllDamage: each kind of it in turn, with the checkpoints that it hurts.
func TestVerifyFindsAllDamage(t *testing.T) {
	whole := memblob.New()
	save(t, whole, 1, state(1))
	save(t, whole, 2, state(2))
	fresh := func() *memblob.Store {
		s := memblob.New()
		for _, key := range keys(t, whole, "") {
			data, err := blob.ReadKey(t.Context(), whole, key)
			if err == nil {
				_, err = blob.PutBytes(t.Context(), s, key, data, blob.Always)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	for what, spoil := range map[string]func(s *memblob.Store) (key, problem string){
		"nothing":                   func(*memblob.Store) (string, string) { return "", "" },
		"a manifest of format 2":    func(s *memblob.Store) (string, string) { rewrite(t, s, asFormat2); return firstManifest, "format 2" },
		"a flipped bit":             func(s *memblob.Store) (string, string) { return damage(t, s), "sha256 " },
		"a checksum of other bytes": wrongSum(t),
		"a shard that is missing": func(s *memblob.Store) (string, string) {
			key := keys(t, s, "cas/")[0]
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			return key, "missing"
		},
		"a shard that is cut off": func(s *memblob.Store) (string, string) {
			key := keys(t, s, "cas/")[0]
			if _, err := blob.PutBytes(t.Context(), s, key, []byte("short"), blob.Always); err != nil {
				t.Fatal(err)
			}
			return key, "5 bytes, want "
		},
		"a manifest that is cut off": func(s *memblob.Store) (string, string) {
			if _, err := blob.PutBytes(t.Context(), s, firstManifest, []byte(`{"format": 3`), blob.Always); err != nil {
				t.Fatal(err)
			}
			return firstManifest, "is damaged"
		},
	} {
		s := fresh()
		key, problem := spoil(s)
		got, err := checkpoint.Verify(t.Context(), s, "runs")
		if err != nil || got.Checkpoints != 2 || len(got.Damaged) > 1 || len(got.Damaged) == 0 != (key == "") {
			t.Errorf("%s: %+v, error %v", what, got, err)
			continue
		}
		if key == "" {
			if got.Shards != 6 || got.Bytes == 0 {
				t.Errorf("%s: %+v", what, got)
			}
			continue
		}
		d := got.Damaged[0]
		if d.Key != key || !strings.Contains(d.Problem, problem) || len(d.Checkpoints) != 1 {
			t.Errorf("%s: %+v, want %s with %q", what, d, key, problem)
		}
	}
}

// wrongSum gives one shard of the first manifest a checksum of other bytes.
func wrongSum(t *testing.T) func(s *memblob.Store) (key, problem string) {
	return func(s *memblob.Store) (string, string) {
		var sha string
		rewrite(t, s, func(m map[string]any) {
			sums := m["crc64nvme"].(map[string]any)
			sha = slices.Sorted(maps.Keys(sums))[0]
			sums[sha] = "AAAAAAAAAAA="
		})
		return "cas/" + sha[:2] + "/" + sha + ".safetensors", "crc64nvme "
	}
}

// TestVerifyReadsSharedShardsOnce: two checkpoints of one state name the same shards.
func TestVerifyReadsSharedShardsOnce(t *testing.T) {
	s := memblob.New()
	ref := save(t, s, 1, state(1))
	if _, err := checkpoint.Adopt(t.Context(), s, ref, "runs/fork/ckpt"); err != nil {
		t.Fatal(err)
	}
	key := damage(t, s)
	got, err := checkpoint.Verify(t.Context(), s, "runs")
	if err != nil || got.Checkpoints != 2 || got.Shards != 3 || len(got.Damaged) != 1 || got.Damaged[0].Key != key || len(got.Damaged[0].Checkpoints) != 2 {
		data, _ := json.Marshal(got) // plain fields
		t.Errorf("%s, error %v", data, err)
	}
	if got, err := checkpoint.Verify(t.Context(), s, "runs/other"); err != nil || got.Checkpoints != 0 || len(got.Damaged) != 0 {
		t.Errorf("a folder without checkpoints: %+v, error %v", got, err)
	}
}
