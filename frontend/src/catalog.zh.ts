import messages from "messages:zh";
import strings from "./strings/zh.json";

export default { strings, messages };
