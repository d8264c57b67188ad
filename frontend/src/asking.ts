/** A question to the server. */

/** What the server refused, in its own words. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly kind: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export async function ask(path: string, options?: RequestInit): Promise<Response> {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refusal(said.error ?? `${answer.status} ${answer.statusText}`, said.kind ?? "server", answer.status);
}
