package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chart is the directory of the Helm chart, below the root of the project.
const chart = "deploy/helm/phoenixnap-cloud-provider"

// chartValues is the table of the values of the chart.
func chartValues(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(chart), "values.yaml"))
	if err != nil {
		return "", fmt.Errorf("read the values of the chart: %w", err)
	}
	return values(text)
}

// values is the table of the values of a chart: what their comments say, and their defaults.
func values(text []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("parse the values of the chart: %w", err)
	}
	if len(document.Content) == 0 {
		return "", fmt.Errorf("the values of the chart are empty")
	}
	rows, err := valueRows("", document.Content[0])
	if err != nil {
		return "", err
	}
	return table([]string{"value", "meaning", "default"}, rows), nil
}

// valueRows lists the values of a mapping in their order. A mapping below which nothing has a comment is one value.
func valueRows(below string, mapping *yaml.Node) ([][]string, error) {
	var rows [][]string
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		value := mapping.Content[i+1]
		path := below + key.Value
		meaning := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " ")
		if isSection(value) {
			if meaning != "" {
				rows = append(rows, []string{code(path), marked(meaning), ""})
			}
			nested, err := valueRows(path+".", value)
			if err != nil {
				return nil, err
			}
			rows = append(rows, nested...)
			continue
		}
		if meaning == "" {
			return nil, fmt.Errorf("the value %s of the chart has no comment", path)
		}
		standard, err := defaultOf(value)
		if err != nil {
			return nil, fmt.Errorf("the value %s of the chart: %w", path, err)
		}
		rows = append(rows, []string{code(path), marked(meaning), code(standard)})
	}
	return rows, nil
}

// isSection reports whether a mapping has comments.
func isSection(node *yaml.Node) bool {
	if node.Kind != yaml.MappingNode {
		return false
	}
	for _, each := range node.Content {
		if each.HeadComment != "" || isSection(each) {
			return true
		}
	}
	return false
}

// defaultOf writes a default as one line of YAML.
func defaultOf(node *yaml.Node) (string, error) {
	if node.Kind == yaml.ScalarNode && node.Value != "" {
		return node.Value, nil
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return "", err
	}
	line, err := json.Marshal(value)
	return string(line), err
}
