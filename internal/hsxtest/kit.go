package hsxtest

import (
	"encoding/json"
	"os"
	"testing"
)

// Kits are the fixture kits at hand, by name: dumps of every producer, made with the
// real libraries, and their answers. The small one, whose directory the caller knows, is
// a selection of the full one, which HSX_FIXTURES names and CI must have.
func Kits(tb testing.TB, small string) map[string]string {
	tb.Helper()
	kits := map[string]string{"small": small}
	if full := os.Getenv("HSX_FIXTURES"); full != "" {
		kits["full"] = full
	} else if os.Getenv("CI") == "true" {
		tb.Error("HSX_FIXTURES is empty, want the directory of the full fixture kit: CI runs on all of it")
	}
	return kits
}

// ReadJSON reads the JSON document in a file into v.
func ReadJSON(tb testing.TB, name string, v any) {
	tb.Helper()
	if err := json.Unmarshal(Read(tb, name), v); err != nil {
		tb.Fatalf("read %s: %v", name, err)
	}
}
