import { render } from "preact";
import "styles";
import "./approval";
import { Shell } from "./shell";
import { language } from "./state";
import { loadStrings } from "./strings";

await loadStrings(language());
render(<Shell />, document.getElementById("app")!);
