package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is kept of a server's arguments.
const (
	maxArguments = 2000
	maxArgument  = 500 // runes of one value
	maxDepth     = 8
)

// flatten writes a decoded JSON value as arguments, nested ones with dots. An object
// inside a string, as some arguments are given, is opened too. Secrets are left out.
func flatten(into map[string]string, name string, value any, depth int) {
	if len(into) >= maxArguments || depth > maxDepth || secretName(name, value) {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			inner := key
			if name != "" {
				inner = name + "." + key
			}
			flatten(into, inner, v[key], depth+1)
		}
	case []any:
		if slices.ContainsFunc(v, nested) {
			for i, item := range v {
				flatten(into, name+"."+strconv.Itoa(i), item, depth+1)
			}
			return
		}
		text := fmt.Sprint(v)
		if !secretText(text) {
			into[name] = printable(text, maxArgument)
		}
	case string:
		if object, err := decodeObject([]byte(v)); err == nil {
			flatten(into, name, object, depth+1)
		} else if !secretText(v) {
			into[name] = printable(v, maxArgument)
		}
	case nil:
		into[name] = "null"
	default:
		into[name] = fmt.Sprint(v)
	}
}

func nested(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// decodeObject reads a JSON object and keeps its numbers as they are written.
func decodeObject(body []byte) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, fmt.Errorf("null, want an object")
	}
	return object, nil
}

// secretName reports whether an argument is a secret by its name: keys, passwords, and
// tokens unless these are counted or a tokenizer's.
func secretName(name string, value any) bool {
	switch value.(type) {
	case nil, bool:
		return false
	}
	name = strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	for _, sign := range []string{"key", "passw", "secret", "credential", "authorization"} {
		if strings.Contains(name, sign) {
			return true
		}
	}
	name = strings.ReplaceAll(name, "tokenizer", "")
	if !strings.Contains(name, "token") || strings.HasSuffix(name, "token_map") {
		return false
	}
	switch v := value.(type) {
	case string:
		_, err := strconv.ParseFloat(v, 64)
		return err != nil
	case map[string]any:
		return true
	}
	return false
}

// secretText reports whether a value looks like a key or holds one.
func secretText(text string) bool {
	text = strings.ToLower(text)
	for _, sign := range []string{"sk-", "hf_", "eyj"} {
		if strings.HasPrefix(text, sign) {
			return true
		}
	}
	for _, sign := range []string{"api_key", "api-key", "apikey", "password", "secret", "token=", "token:", "bearer ", "authorization"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	_, rest, found := strings.Cut(text, "://")
	host, _, _ := strings.Cut(rest, "/")
	return found && strings.Contains(host, "@")
}

// synthetic is the argument that makes up acceptance, as name=value, or "".
func synthetic(arguments map[string]string) string {
	signs := []string{
		"synthetic_acceptance", "simulate_acc", "force_num_accepted_tokens", // vLLM, SGLang, TensorRT-LLM
		"spec_decode_acceptance", // ATOM
	}
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		value := strings.ToLower(arguments[name])
		switch value {
		case "", "null", "none", "false", "0", "0.0", "-1", "-1.0", "off":
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(name), "-", "_")
		named := func(sign string) bool { return strings.Contains(key, sign) }
		if slices.ContainsFunc(signs, named) || strings.HasSuffix(key, "rejection_sample_method") && value == "synthetic" {
			return name + "=" + arguments[name]
		}
	}
	return ""
}
