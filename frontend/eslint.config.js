// Rules that find bugs. Prettier owns the style, and tsc finds unused names and wrong types.
import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["**/node_modules/"] },
  js.configs.recommended,
  ts.configs.base,
  {
    files: ["**/*.{ts,tsx}"],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "react-hooks": hooks },
    rules: {
      "no-undef": "off", // tsc
      "no-unused-vars": "off", // tsc
      "no-redeclare": "off", // tsc; overloads are no redeclaration
      "no-control-regex": "off", // control characters are what these expressions look for
      eqeqeq: "error",
      "max-len": [
        "error",
        { code: 120, ignoreStrings: true, ignoreTemplateLiterals: true, ignorePattern: "^// page: " },
      ],
      "no-self-compare": "error",
      "no-template-curly-in-string": "error",
      "react-hooks/rules-of-hooks": "error",
      "@typescript-eslint/await-thenable": "error",
      "@typescript-eslint/no-explicit-any": "error",
      "@typescript-eslint/no-floating-promises": "error",
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      "@typescript-eslint/no-for-in-array": "error",
      "@typescript-eslint/only-throw-error": "error",
      "@typescript-eslint/restrict-plus-operands": "error",
      "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
    },
  },
  {
    files: ["**/*.{js,mjs}"],
    languageOptions: { globals: { process: "readonly", URL: "readonly", console: "readonly" } },
  },
);
