package validate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
)

// targetKitReference is the kit's fingerprint, which was made from other texts, as a
// reference.
func targetKitReference(t *testing.T, kit string) *Reference {
	t.Helper()
	target, err := format.ParseTarget(hsxtest.Read(t, filepath.Join(kit, "model/config.json")))
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Layers map[string]struct {
			Rows      int64
			Mean, Std []float32
		}
	}
	hsxtest.ReadJSON(t, filepath.Join(kit, "expected/fingerprint.json"), &in)
	r := &Reference{Format: referenceFormat, Version: 1, Target: target, HiddenSize: target.HiddenSize}
	for _, name := range []string{"P-1", "P0", "P1", "P2", "P3", "P4", "N"} {
		l := in.Layers[name]
		r.Rows = l.Rows
		r.States = append(r.States, ReferenceState{State: strings.Replace(name, "P", "P_", 1), Mean: l.Mean, Std: l.Std})
	}
	return r
}

// targetTestReference is the same from testdata.
func targetTestReference(t testing.TB) *Reference {
	t.Helper()
	r, err := ParseReference(hsxtest.Read(t, "testdata/layers/reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReferenceIsTheKits(t *testing.T) {
	t.Parallel()
	want, err := targetKitReference(t, fullKit(t)).Encode()
	if err != nil {
		t.Fatal(err)
	}
	const path = "testdata/layers/reference.json"
	if os.Getenv("HSX_UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(hsxtest.Read(t, path), want) {
		t.Errorf("%s is not the kit's fingerprint: HSX_UPDATE=1 writes it anew", path)
	}
}
