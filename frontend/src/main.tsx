import { render } from "preact";
import "./style.css";
import { Shell } from "./shell";

render(<Shell />, document.getElementById("app")!);
